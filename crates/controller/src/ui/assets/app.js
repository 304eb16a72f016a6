// Keeps a page up to date: asks for it again, and puts in what changed.
import uPlot from "./uplot.js";

const lost = document.getElementById("lost");

// Those sections of the same page, as the server would send them now.
async function again(ids) {
  const url = new URL(location.href);
  url.hash = "";
  url.searchParams.set("only", ids.join(","));
  const answer = await fetch(url, { cache: "no-store", redirect: "manual" });
  if (answer.type === "opaqueredirect") {
    location.assign("/ui/login");
    throw new Error("logged out");
  }
  if (!answer.ok) throw new Error(`status ${answer.status}`);
  return new DOMParser().parseFromString(await answer.text(), "text/html");
}

function isLost(yes) {
  if (!lost) return;
  if (yes && lost.hidden) {
    lost.textContent = `The controller does not answer since ${new Date().toLocaleTimeString()}: what is shown is old.`;
  }
  lost.hidden = !yes;
}

// -- sorting: a click on a column's head, kept when the table is replaced ---------------------------------------

const sorted = new Map();
const units = { b: 1, k: 1e3, M: 1e6, G: 1e9, T: 1e12 };

function key(cell) {
  const text = cell.textContent.trim();
  const number = text.match(/^([\d.]+)\s*([kMGT]?)/);
  return number ? parseFloat(number[1]) * (units[number[2]] ?? 1) : text === "–" ? -1 : text;
}

function sort(table, column, down) {
  const rows = [...table.tBodies[0].rows];
  const order = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
  rows.sort((a, b) => {
    const [x, y] = [key(a.cells[column]), key(b.cells[column])];
    const sign = typeof x === typeof y ? order(x, y) : order(typeof x, typeof y);
    return down ? -sign : sign;
  });
  table.tBodies[0].append(...rows);
  [...table.tHead.rows[0].cells].forEach((head, n) => {
    head.setAttribute("aria-sort", n === column ? (down ? "descending" : "ascending") : "none");
  });
}

function prepare(section) {
  section.querySelectorAll("table.heat").forEach(prepareMap);
  section.querySelectorAll("table.sorted").forEach((table, number) => {
    const name = `${section.id}/${number}`;
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      head.tabIndex = 0;
      const turn = () => {
        const before = sorted.get(name);
        const down = before?.column === column ? !before.down : false;
        sorted.set(name, { column, down });
        sort(table, column, down);
      };
      head.addEventListener("click", turn);
      head.addEventListener("keydown", (event) => {
        if (event.key === "Enter" || event.key === " ") {
          event.preventDefault();
          turn();
        }
      });
    });
    const chosen = sorted.get(name);
    if (chosen) sort(table, chosen.column, chosen.down);
  });
}

// -- maps: arrows move between cells, and a line says what the cell under the pointer or the keyboard is ---------

function prepareMap(table) {
  const says = table.parentElement.querySelector(".says");
  const rows = [...table.tBodies[0].rows].map((row) => [...row.querySelectorAll("a")]);
  // The map is one stop of the tabulator.
  rows.flat().forEach((cell) => (cell.tabIndex = -1));
  if (rows.length > 0) rows[0][0].tabIndex = 0;
  const tell = (event) => {
    const cell = event.target.closest("a");
    if (cell && says) says.textContent = cell.title;
  };
  table.addEventListener("focusin", tell);
  table.addEventListener("pointerover", tell);
  table.addEventListener("keydown", (event) => {
    const y = rows.findIndex((row) => row.includes(event.target));
    if (y < 0) return;
    const x = rows[y].indexOf(event.target);
    const moves = {
      ArrowLeft: [y, x - 1], ArrowRight: [y, x + 1], ArrowUp: [y - 1, x], ArrowDown: [y + 1, x],
      Home: [y, 0], End: [y, rows[y].length - 1],
    };
    const [row, column] = moves[event.key] ?? [-1, -1];
    const cell = rows[row]?.[column];
    if (!(event.key in moves) || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    if (!cell) return;
    event.target.tabIndex = -1;
    cell.tabIndex = 0;
    cell.focus();
  });
}

// -- parts of the page --------------------------------------------------------------------------------------------

const sections = [...document.querySelectorAll("[data-live]")].map((section) => {
  const part = { id: section.id, every: Number(section.dataset.live), due: 0, html: section.innerHTML };
  part.due = part.every;
  prepare(section);
  return part;
});

let seconds = 0;
// A slow answer is waited for: requests must not pile up.
let isAsking = false;
async function tick() {
  seconds += 1;
  // One part at a time, the one that is due longest: large parts together would hold up the pointer and the keyboard.
  const due = sections.filter((part) => part.due <= seconds).sort((a, b) => a.due - b.due).slice(0, 1);
  if (document.hidden || isAsking || due.length === 0) return;
  isAsking = true;
  try {
    const page = await again(due.map((part) => part.id));
    for (const part of due) {
      part.due = seconds + part.every;
      const html = page.getElementById(part.id)?.innerHTML;
      const section = document.getElementById(part.id);
      // A link that has the keyboard is not taken away.
      if (html === undefined || html === part.html || section.contains(document.activeElement)) continue;
      part.html = html;
      section.innerHTML = html;
      prepare(section);
    }
    isLost(false);
  } catch {
    isLost(true);
  } finally {
    isAsking = false;
  }
}

// -- charts -------------------------------------------------------------------------------------------------------

function rate(bps) {
  if (bps == null) return "–";
  const [size, unit] = [[1e12, "Tb/s"], [1e9, "Gb/s"], [1e6, "Mb/s"], [1e3, "kb/s"]].find(([s]) => bps >= s) ?? [1, "b/s"];
  return `${(bps / size).toPrecision(3)} ${unit}`;
}

function clock(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString("en-GB");
}

function draw(figure) {
  const place = figure.querySelector(".plot");
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  const axis = { stroke: colour("--text"), grid: { stroke: colour("--line") }, ticks: { stroke: colour("--line") } };
  const line = (label, name, more) => ({
    label, stroke: colour(name), width: 2, points: { show: false }, value: (_, value) => rate(value), ...more,
  });
  const options = {
    width: place.clientWidth, height: 220,
    // The last label of the time is wider than its grid.
    padding: [8, 30, 0, 0],
    scales: { y: { range: (_, low, high) => [0, Math.max(high * 1.05, 1000)] } },
    axes: [{ ...axis, values: (_, all) => all.map(clock) }, { ...axis, size: 80, values: (_, all) => all.map(rate) }],
    series: [
      { label: "time", value: (_, value) => (value == null ? "–" : clock(value)) }, line("sent", "--first"), line("received", "--second"), line("owed to those that want more", "--third", { dash: [6, 4] }),
      line("ideally sent", "--first", { dash: [2, 3], width: 1 }),
    ],
  };
  let plot;
  const load = async () => {
    if (document.hidden) return;
    try {
      const answer = await fetch(figure.dataset.series, { cache: "no-store" });
      if (!answer.ok) return;
      const told = await answer.json();
      const data = [told.at, told.out, told.in, told.owed, told.ideal];
      if (plot) plot.setData(data);
      else plot = new uPlot(options, data, place);
      figure.dataset.points = told.at.length;
    } catch {
      // The sections say that nobody answers.
    }
  };
  new ResizeObserver(() => plot?.setSize({ width: place.clientWidth, height: 220 })).observe(place);
  load();
  setInterval(load, 10_000);
}

document.querySelectorAll("figure.chart").forEach(draw);
if (sections.length > 0) setInterval(tick, 1000);
