//! The agents' status of the translations and budgets that a scenario asks for.

use super::Agents;
use super::usage::ask;
use crate::Error;

impl Agents {
    /// Fails if an agent refuses a translation or a budget, because then another setting was
    /// played.
    pub(crate) fn check_translations(&self) -> Result<(), Error> {
        self.agents.iter().try_for_each(|agent| {
            let Some(top) = ask(&agent.socket) else { return Ok(()) };
            let mut all = top.translations.into_iter();
            if let Some((why, vm, to)) = all.find_map(|one| Some((one.refused?, one.vm, one.to))) {
                return Err(agent.error(format!("does not translate {vm} to {to}: {why}")));
            }
            let mut all = top.budgets.into_iter();
            all.find_map(|one| Some((one.refused?, one.vm))).map_or(Ok(()), |(why, vm)| {
                Err(agent.error(format!("does not bound the windows of {vm}: {why}")))
            })
        })
    }

    /// What a reader of the results should know: connections that were not translated as they
    /// should be.
    pub(crate) fn untranslated(&self) -> Vec<String> {
        let mut notes = Vec::new();
        for agent in &self.agents {
            let all = ask(&agent.socket).map_or_else(Vec::new, |top| top.translations);
            for one in all {
                let bad = [
                    (one.left_alone.no_place, "connections found no place in the table"),
                    (
                        one.left_alone.unknown_segments,
                        "segments were of connections that the table does not have",
                    ),
                    (one.left_alone.malformed_segments, "segments could not be read"),
                    (one.unedited, "segments could not be changed"),
                    (one.policed, "segments beyond their window were dropped"),
                ];
                for (count, what) in bad.into_iter().filter(|(count, _)| *count > 0) {
                    notes.push(format!(
                        "translation at {} on {}: {count} {what}",
                        one.vm, agent.host
                    ));
                }
            }
        }
        notes
    }
}
