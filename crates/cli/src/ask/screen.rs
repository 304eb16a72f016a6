//! `weir top` on a terminal: all pairs of an agent, sorted and filtered, once a second until `q`.
//!
//! Approach  `View` is what is seen, and changes by keys and answers alone. Drawing reads it.
//! Promises  The terminal is as before after `q`, Ctrl-C, SIGTERM and errors. An agent that goes away is
//!           said, and shown again when it is back.

use super::{client, note_text};
use crate::commands;
use anyhow::{Result, anyhow};
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Cell, Paragraph, Row, Table, TableState, Wrap};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use weir_model::status::{Explain, Pair, Reply, Request, Top};
use weir_units::show;

/// The agent is asked so often.
const EACH: Duration = Duration::from_secs(1);
/// A key is waited for so long, then signals are looked at.
const PATIENCE: Duration = Duration::from_millis(100);

/// What the table is sorted by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Column {
    From,
    To,
    Floor,
    Rate,
    Measured,
    Lost,
    Phase,
}

const COLUMNS: [(Column, &str, Constraint); 7] = [
    (Column::From, "from", Constraint::Fill(2)),
    (Column::To, "to", Constraint::Fill(2)),
    (Column::Floor, "floor", Constraint::Length(11)),
    (Column::Rate, "rate", Constraint::Length(11)),
    (Column::Measured, "measured", Constraint::Length(11)),
    (Column::Lost, "lost", Constraint::Length(9)),
    (Column::Phase, "phase", Constraint::Fill(2)),
];

/// What is seen beside the table.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Pane {
    None,
    Notes,
    Explain(Vec<String>),
}

/// What a key asks for that the view cannot do by itself.
#[derive(PartialEq, Eq, Debug)]
enum Wish {
    Nothing,
    Quit,
    /// Why the pair of these two has its rate.
    Explain(String, String),
}

struct View {
    top: Top,
    sort: Column,
    descending: bool,
    filter: String,
    /// Keys go into the filter.
    typing: bool,
    paused: bool,
    selected: usize,
    pane: Pane,
    /// Why the last answer did not come.
    trouble: Option<String>,
}

impl View {
    fn new(top: Top) -> Self {
        Self {
            top,
            sort: Column::Measured,
            descending: true,
            filter: String::new(),
            typing: false,
            paused: false,
            selected: 0,
            pane: Pane::None,
            trouble: None,
        }
    }

    fn take(&mut self, answer: Result<Top>) {
        match answer {
            Ok(top) => (self.top, self.trouble) = (top, None),
            Err(error) => self.trouble = Some(format!("{error:#}")),
        }
        self.selected = self.selected.min(self.rows().len().saturating_sub(1));
    }

    /// The pairs that pass the filter, in order.
    fn rows(&self) -> Vec<&Pair> {
        let passes = |pair: &&Pair| {
            let words = [&pair.from, &pair.to, &pair.phase, &pair.side];
            words.iter().any(|word| word.contains(&self.filter))
        };
        let mut rows: Vec<&Pair> = self.top.pairs.iter().filter(passes).collect();
        rows.sort_by(|a, b| {
            let order = match self.sort {
                Column::From => a.from.cmp(&b.from),
                Column::To => a.to.cmp(&b.to),
                Column::Floor => a.floor_bps.cmp(&b.floor_bps),
                Column::Rate => a.rate_bps.cmp(&b.rate_bps),
                Column::Measured => a.measured_bps.cmp(&b.measured_bps),
                Column::Lost => a.lost.cmp(&b.lost),
                Column::Phase => a.phase.cmp(&b.phase),
            };
            let order = if self.descending { order.reverse() } else { order };
            // Rows of equal rank do not jump about.
            order.then_with(|| (&a.from, &a.to, &a.side).cmp(&(&b.from, &b.to, &b.side)))
        });
        rows
    }

    fn press(&mut self, key: KeyCode) -> Wish {
        if self.typing {
            match key {
                KeyCode::Enter => self.typing = false,
                KeyCode::Esc => (self.typing, self.filter) = (false, String::new()),
                KeyCode::Backspace => drop(self.filter.pop()),
                KeyCode::Char(letter) => self.filter.push(letter),
                _ => {}
            }
            self.selected = 0;
            return Wish::Nothing;
        }
        match key {
            KeyCode::Char('q') => return Wish::Quit,
            KeyCode::Esc => self.pane = Pane::None,
            KeyCode::Char('/') => self.typing = true,
            KeyCode::Char(' ') => self.paused = !self.paused,
            KeyCode::Char('n') => {
                self.pane = if self.pane == Pane::Notes { Pane::None } else { Pane::Notes };
            }
            KeyCode::Char('r') => self.descending = !self.descending,
            KeyCode::Left | KeyCode::Right => {
                let at = COLUMNS.iter().position(|column| column.0 == self.sort).unwrap_or(0);
                let step = if key == KeyCode::Right { 1 } else { COLUMNS.len() - 1 };
                self.sort = COLUMNS[(at + step) % COLUMNS.len()].0;
                self.descending = !matches!(self.sort, Column::From | Column::To | Column::Phase);
            }
            KeyCode::Up => self.selected = self.selected.saturating_sub(1),
            KeyCode::Down => {
                self.selected = (self.selected + 1).min(self.rows().len().saturating_sub(1));
            }
            KeyCode::Enter => {
                if let Some(pair) = self.rows().get(self.selected) {
                    return Wish::Explain(pair.from.clone(), pair.to.clone());
                }
            }
            _ => {}
        }
        Wish::Nothing
    }

    fn explain(&mut self, answer: Result<Explain>) {
        self.pane = Pane::Explain(match answer {
            Ok(explain) => {
                let numbered = explain.reasons.iter().enumerate();
                let lines = numbered.map(|(n, reason)| format!("{}. {reason}", n + 1));
                let head = format!("Why {} → {} has its rate", explain.pair.from, explain.pair.to);
                std::iter::once(head).chain(lines).collect()
            }
            Err(error) => vec![format!("{error:#}")],
        });
    }

    fn title(&self) -> String {
        let Top { host, mechanism, up_s, cpu_s, pairs, .. } = &self.top;
        let mut title = format!(
            " {host}: {mechanism}, up {up_s:.0} s, {cpu_s:.2} s of CPU, {} pairs ",
            pairs.len()
        );
        if !self.filter.is_empty() || self.typing {
            title += &format!("with “{}” ", self.filter);
        }
        if self.paused {
            title += "PAUSED ";
        }
        if self.top.observing {
            title += "OBSERVING: nothing is enforced ";
        }
        title
    }
}

fn draw(frame: &mut Frame<'_>, view: &View) {
    let beside = match &view.pane {
        Pane::None => Vec::new(),
        Pane::Notes => {
            let notes = note_text(&view.top);
            if notes.is_empty() { vec!["nothing to say".into()] } else { lines(&notes) }
        }
        Pane::Explain(lines) => lines.clone(),
    };
    let room = frame.area().height.saturating_sub(4) / 2;
    let height = if beside.is_empty() { 0 } else { room };
    let [table, pane, foot] =
        Layout::vertical([Constraint::Min(3), Constraint::Length(height), Constraint::Length(1)])
            .areas(frame.area());

    let rate = |bps: u64| if bps == 0 { "–".into() } else { show::rate(bps as f64) };
    let right = |text: String| Cell::from(Line::from(text).right_aligned());
    let row = |pair: &&Pair| {
        let phase = pair.long_path.map_or(pair.phase.clone(), |l| format!("{}, {l}", pair.phase));
        Row::new([
            Cell::from(pair.from.clone()),
            Cell::from(pair.to.clone()),
            right(rate(pair.floor_bps)),
            right(rate(pair.rate_bps)),
            right(show::rate(pair.measured_bps as f64)),
            right(pair.lost.to_string()),
            Cell::from(phase),
        ])
    };
    let head = |(column, name, _): &(Column, &str, Constraint)| {
        let arrow = if view.descending { "↓" } else { "↑" };
        let name = if *column == view.sort { format!("{name}{arrow}") } else { (*name).to_owned() };
        let is_number = !matches!(column, Column::From | Column::To | Column::Phase);
        if is_number { right(name) } else { Cell::from(name) }
    };
    let rows = view.rows();
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let drawn = Table::new(rows.iter().map(row), COLUMNS.map(|column| column.2))
        .header(Row::new(COLUMNS.iter().map(head)).style(bold))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
        .block(Block::bordered().title(view.title()));
    let mut state = TableState::new().with_selected((!rows.is_empty()).then_some(view.selected));
    frame.render_stateful_widget(drawn, table, &mut state);
    if height > 0 {
        let text: Vec<Line<'_>> = beside.into_iter().map(Line::from).collect();
        let drawn = Paragraph::new(text).wrap(Wrap { trim: false }).block(Block::bordered());
        frame.render_widget(drawn, pane);
    }
    let keys = "↑↓ choose  Enter why  ←→ sort  r reverse  / filter  n notes  Space pause  q quit";
    let said = match (&view.trouble, view.typing) {
        (Some(trouble), _) => format!("NO ANSWER: {trouble}"),
        (None, true) => {
            "type what from, to, side or phase must have; Enter keeps it, Esc removes it".into()
        }
        (None, false) => keys.into(),
    };
    frame.render_widget(Line::from(said), foot);
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}

fn ask_top(socket: &Path) -> Result<Top> {
    match client::ask(socket, &Request::Top)? {
        Reply::Top(top) => Ok(*top),
        other => Err(refused(other)),
    }
}

fn ask_why(socket: &Path, from: String, to: String) -> Result<Explain> {
    match client::ask(socket, &Request::Explain { from, to })? {
        Reply::Explain(explain) => Ok(explain),
        other => Err(refused(other)),
    }
}

fn refused(reply: Reply) -> anyhow::Error {
    match reply {
        Reply::Error { message } => anyhow!("{message}"),
        _ => anyhow!("the agent answered another question: is it of another version?"),
    }
}

/// Shows the agent at `socket` until `q`.
///
/// # Errors
/// No agent answers at the start, or the terminal is none.
#[expect(clippy::disallowed_methods, reason = "a driver: it asks once a second")]
pub(super) fn show(socket: &Path) -> Result<u8> {
    let stop = commands::stop_flag()?;
    let mut view = View::new(ask_top(socket)?);
    let mut terminal = ratatui::try_init()?;
    let mut asked = Instant::now();
    let mut run = || -> Result<u8> {
        loop {
            terminal.draw(|frame| draw(frame, &view))?;
            if stop.load(Ordering::Relaxed) {
                return Ok(commands::INTERRUPTED);
            }
            if event::poll(PATIENCE)?
                && let Event::Key(key) = event::read()?
                && key.kind == KeyEventKind::Press
            {
                let is_interrupt = key.modifiers.contains(KeyModifiers::CONTROL);
                match view.press(key.code) {
                    _ if is_interrupt && key.code == KeyCode::Char('c') => {
                        return Ok(commands::INTERRUPTED);
                    }
                    Wish::Quit => return Ok(0),
                    Wish::Explain(from, to) => view.explain(ask_why(socket, from, to)),
                    Wish::Nothing => {}
                }
            }
            if !view.paused && asked.elapsed() >= EACH {
                asked = Instant::now();
                view.take(ask_top(socket));
            }
        }
    };
    let ended = run();
    ratatui::try_restore()?;
    ended
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn pair(from: &str, to: &str, measured: u64) -> Pair {
        Pair {
            from: from.into(),
            to: to.into(),
            side: "send".into(),
            phase: "growing".into(),
            floor_bps: 10_000_000,
            measured_bps: measured,
            ..Pair::default()
        }
    }

    fn view() -> View {
        let pairs = vec![pair("a", "b", 1_000_000), pair("c", "b", 30_000_000), pair("a", "c", 0)];
        View::new(Top { host: "h1".into(), pairs, ..Top::default() })
    }

    fn order(view: &View) -> Vec<String> {
        view.rows().iter().map(|pair| format!("{}{}", pair.from, pair.to)).collect()
    }

    fn drawn(view: &View) -> String {
        let mut terminal = Terminal::new(TestBackend::new(100, 16)).unwrap();
        terminal.draw(|frame| draw(frame, view)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn pairs_are_sorted_by_the_column_that_keys_choose() {
        let mut view = view();
        assert_eq!(order(&view), ["cb", "ab", "ac"], "what sends most comes first");
        view.press(KeyCode::Char('r'));
        assert_eq!(order(&view), ["ac", "ab", "cb"]);
        for _ in 0..4 {
            view.press(KeyCode::Left);
        }
        assert_eq!((view.sort, view.descending), (Column::From, false));
        assert_eq!(order(&view), ["ab", "ac", "cb"]);
        view.press(KeyCode::Left);
        assert_eq!(view.sort, Column::Phase, "around the edge");
    }

    #[test]
    fn a_filter_leaves_the_pairs_that_have_it_and_escape_brings_all_back() {
        let mut view = view();
        view.press(KeyCode::Down);
        for key in [KeyCode::Char('/'), KeyCode::Char('c'), KeyCode::Enter] {
            assert_eq!(view.press(key), Wish::Nothing);
        }
        assert_eq!((order(&view), view.selected), (vec!["cb".to_owned(), "ac".to_owned()], 0));
        view.press(KeyCode::Char('/'));
        view.press(KeyCode::Char('q'));
        assert!(order(&view).is_empty(), "a letter, and not the end");
        assert!(drawn(&view).contains("with “cq”"));
        assert_eq!(view.press(KeyCode::Enter), Wish::Nothing);
        assert_eq!(view.press(KeyCode::Enter), Wish::Nothing, "no pair to explain");
        view.press(KeyCode::Char('/'));
        view.press(KeyCode::Esc);
        assert_eq!(order(&view).len(), 3);
    }

    #[test]
    fn the_chosen_pair_is_explained_and_shown() {
        let mut view = view();
        view.press(KeyCode::Down);
        assert_eq!(view.press(KeyCode::Enter), Wish::Explain("a".into(), "b".into()));
        let reasons = vec!["its hose is 10 Mb/s".to_owned()];
        view.explain(Ok(Explain { pair: pair("a", "b", 0), reasons }));
        let screen = drawn(&view);
        assert!(screen.contains("Why a → b") && screen.contains("1. its hose is"), "{screen}");
        view.press(KeyCode::Esc);
        assert!(!drawn(&view).contains("Why a → b"));
    }

    #[test]
    fn an_agent_that_goes_away_is_said_and_the_last_answer_stays() {
        let mut view = view();
        view.press(KeyCode::Down);
        view.press(KeyCode::Down);
        view.take(Err(anyhow!("no agent answers")));
        let screen = drawn(&view);
        assert!(screen.contains("NO ANSWER: no agent answers") && screen.contains("30.0 Mb/s"));
        view.take(Ok(Top { host: "h1".into(), ..Top::default() }));
        assert_eq!((view.selected, view.trouble.clone()), (0, None));
        assert!(drawn(&view).contains("q quit"));
    }

    #[test]
    fn notes_say_what_the_table_cannot() {
        let mut view = view();
        view.top.guardian_down = true;
        view.press(KeyCode::Char('n'));
        assert!(drawn(&view).contains("the guardian does not run"), "{}", drawn(&view));
        view.press(KeyCode::Char('n'));
        assert!(!drawn(&view).contains("the guardian"));
    }
}
