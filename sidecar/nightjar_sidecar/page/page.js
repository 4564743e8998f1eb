"use strict";
/* Asks the sidecar's status once a second and shows it; knows nothing that status does not say. */

const PERIOD_MS = 1000;
const PATIENCE_MS = 3000;
const REMEMBERED = 300;

const by = (id) => document.getElementById(id);
const number = (value, digits = 0) =>
  value.toLocaleString("en-US", { maximumFractionDigits: digits, minimumFractionDigits: digits });
const plural = (count, word) => `${number(count)} ${word}${count === 1 ? "" : "s"}`;

function made(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function drawn(tag, attributes) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

function duration(seconds) {
  if (seconds === 0) return "0";
  if (seconds >= 1) return `${Number(seconds.toPrecision(3))} s`;
  if (seconds >= 1e-3) return `${Number((seconds * 1e3).toPrecision(3))} ms`;
  return `${Number((seconds * 1e6).toPrecision(3))} µs`;
}

function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; count >= 1024 && unit < units.length - 1; unit++) count /= 1024;
  return `${number(count, count < 100 && unit ? 1 : 0)} ${units[unit]}`;
}

function ago(seconds) {
  if (seconds < 1) return "now";
  if (seconds < 60) return `${Math.round(seconds)} s ago`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min ago`;
  return `${Math.round(seconds / 3600)} h ago`;
}

const percent = (share) => `${number(100 * share)} %`;
const orDash = (value, shown) => (value === null || value === undefined ? "–" : shown(value));

/* Puts new children where what they show has changed: what did not change keeps focus and selection. */
const shown = new Map();
function show(id, data, build) {
  const text = JSON.stringify(data);
  if (shown.get(id) === text) return;
  shown.set(id, text);
  by(id).replaceChildren(...build(data));
}

function tiles(status) {
  const { steps, speculation, switchCost, plan } = status;
  const blocks = steps.totalBlocks
    ? `${percent(1 - steps.freeBlocks / steps.totalBlocks)} of ${plural(steps.totalBlocks, "KV block")} in use` : "";
  return [
    ["Requests running", orDash(steps.running, number), orDash(steps.waiting, (n) => `${number(n)} waiting`)],
    ["γ of the latest step", orDash(speculation.gamma, number), orDash(steps.batch, (n) => `decode batch ${number(n)}`)],
    ["Tokens per second", number(steps.tokensPerSecond), "last 10 s"],
    ["Steps per second", number(steps.perSecond), steps.dropped ? `${plural(steps.dropped, "report")} lost` : `${number(steps.seen)} in all`],
    ["Accepted, by position", speculation.acceptance.slice(0, 4).map((rate) => number(100 * rate)).join(" ") || "–", "% of drafts"],
    ["Cost of a return now", duration(switchCost.seconds), `${plural(switchCost.staleTokens, "stale token")}`],
    ["KV blocks free", orDash(steps.freeBlocks, number), blocks],
    ["Plan", orDash(plan.version, (n) => `#${number(n)}`), planNote(plan)],
  ];
}

function planNote(plan) {
  if (plan.obeyed === false) return "not obeyed: fallback length";
  return orDash(plan.ageSeconds, (age) => `sent ${ago(age)}`);
}

function regretNote({ share }) {
  return share === null ? "" : `As it believes, the lengths of late cost ${number(100 * share, 1)} % of decoding time beyond the best ones.`;
}

function tile([title, value, note]) {
  return made("div", null, made("dt", null, title), made("dd", null, value, made("small", null, note)));
}

function armsTable(buckets, batch, inForce) {
  const gammas = buckets.length ? buckets[0].arms.map((arm) => arm.gamma) : [];
  const last = buckets.length - 1;
  const head = made("tr", null, made("th", { scope: "col" }, "Batch"),
    ...gammas.map((gamma) => made("th", { scope: "col" }, `γ = ${gamma}`)));
  const rows = buckets.map((bucket, index) => {
    const here = batch >= bucket.minBatch && (batch <= bucket.maxBatch || index === last);
    const mark = bucket.arms.some((arm) => arm.visits) ? SERVED : UNSERVED;
    return made("tr", here ? { "aria-current": "true" } : null, rowHead(bucket, inForce),
      ...bucket.arms.map((arm) => armCell(arm, inForce && arm.gamma === bucket.gamma ? mark : null)));
  });
  return [made("thead", null, head), made("tbody", null, ...rows)];
}

/* How the plan's γ is marked: where it rests on rounds of such batches, and where there were none. */
const SERVED = { class: "held", sign: " ✓", label: "held by the plan" };
const UNSERVED = { class: "held unserved", sign: " ○", label: "held by the plan, no such batch was served yet" };

function rowHead({ minBatch, maxBatch, gamma, schedule }, inForce) {
  const probe = schedule.find((segment) => segment.gamma !== gamma);
  return made("th", { scope: "row" }, minBatch === maxBatch ? `${minBatch}` : `${minBatch}–${maxBatch}`,
    made("small", null, inForce ? `γ ${gamma}${probe ? `, trying ${probe.gamma}` : ""}` : "no plan"));
}

const milliseconds = (seconds) => (seconds * 1e3).toPrecision(3);

function armCell(arm, mark) {
  const parts = [orDash(arm.believedSecondsPerToken, milliseconds)];
  if (mark) parts.push(made("span", { role: "img", "aria-label": mark.label }, mark.sign));
  return made("td", mark ? { class: mark.class } : null, ...parts, ...measurement(arm));
}

function measurement(arm) {
  if (!arm.visits) return [made("small", null, "never run")];
  const margin = arm.measuredMarginSeconds === null ? "" : ` ±${margin95(arm)} %`;
  return [
    made("small", null, milliseconds(arm.measuredSecondsPerToken), made("span", null, margin)),
    made("small", null, number(arm.visits), made("span", { class: "word" }, arm.visits === 1 ? " round" : " rounds")),
  ];
}

function margin95(arm) {
  const share = (100 * arm.measuredMarginSeconds) / arm.measuredSecondsPerToken;
  return number(share, share < 10 ? 1 : 0);
}

const PARTS = [
  ["targetKv", "target-kv", "Target's KV cache"],
  ["draftKv", "draft-kv", "Draft's KV cache"],
  ["draftWeights", "draft-weights", "Draft's weights"],
];

function showMemory(memory, residency) {
  by("memory").hidden = memory === null;
  if (memory === null) return;
  const parts = PARTS.map(([key, name, title]) => [memory[key], name, title]);
  const total = parts.reduce((sum, [count]) => sum + count, 0);
  by("bar").setAttribute("aria-label", parts.map(([count, , title]) => `${title}: ${bytes(count)}`).join(", "));
  show("bar", parts, () => parts.filter(([count]) => count > 0).map(([count, name]) => {
    const part = made("span", { class: name });
    part.style.width = `${(100 * count) / total}%`;
    return part;
  }));
  show("legend", [parts, residency], () => parts.map(([count, name, title]) => made("li", null,
    made("i", { class: name, "aria-hidden": "true" }), title + (name === "draft-weights" ? whereabouts(residency) : ""),
    made("b", null, count || residency ? `${bytes(count)} · ${percent(count / total)}` : "known after a step"))));
}

function whereabouts(residency) {
  const where = (residency ?? "").replace("DRAFT_RESIDENCY_", "").replaceAll("_", " ").toLowerCase();
  return where && where !== "unspecified" ? ` (${where})` : "";
}

function switchPairs(cost) {
  const fixed = cost.mode !== "auto";
  return [
    [fixed ? "Set in the settings" : "Now, measured", duration(cost.seconds)],
    ["Per stale token", duration(cost.secondsPerToken)],
    ["Per step that catches up", duration(cost.secondsPerStep)],
    ["A return took", duration(cost.secondsPerReturn)],
    ["Returns seen", number(cost.returns)],
    ["Stale tokens now", number(cost.staleTokens)],
  ];
}

function showEvents(events) {
  // Ages change all the time; only they do, so that a text that somebody selects stays selected.
  show("events", events.map(({ ageSeconds, ...rest }) => rest), (rest) => rest.map(eventItem));
  for (const [index, time] of [...by("events").querySelectorAll("time")].entries()) {
    time.textContent = ago(events[index].ageSeconds);
  }
}

function eventItem({ kind, message, count }) {
  const times = count > 1 ? ` (${number(count)} times)` : "";
  return made("li", null, made("time"), made("em", null, kind), made("span", null, message + times));
}

/* The course since this page was opened. */
const course = [];

function remember(status) {
  course.push({
    at: Date.now(),
    running: status.steps.running ?? 0,
    waiting: status.steps.waiting ?? 0,
    tokens: status.steps.tokensPerSecond,
    gamma: status.speculation.gamma ?? 0,
  });
  if (course.length > REMEMBERED) course.shift();
}

const CHARTS = [
  { title: "Requests running, waiting (dashed)", lines: ["running", "waiting"], least: 4 },
  { title: "Tokens per second", lines: ["tokens"], least: 10 },
  { title: "γ", lines: ["gamma"], least: 3, steps: true },
];

function showCharts() {
  const seconds = Math.round((course[course.length - 1].at - course[0].at) / 1000);
  by("span").textContent = `last ${seconds < 120 ? `${seconds} s` : `${Math.round(seconds / 60)} min`}, since this page was opened`;
  by("charts").replaceChildren(...CHARTS.map(chart));
}

function chart({ title, lines, least, steps }) {
  const most = Math.max(least, ...course.flatMap((point) => lines.map((line) => point[line])));
  const latest = lines.map((line) => number(course[course.length - 1][line])).join(" / ");
  const picture = drawn("svg", {
    viewBox: "0 0 300 84", preserveAspectRatio: "none", role: "img", "aria-label": `${title}: now ${latest}, at most ${number(most)}`,
  });
  lines.forEach((line, index) =>
    picture.append(drawn("path", { d: path(line, most, steps), class: index ? "second" : "first" })));
  return made("figure", null, made("figcaption", null, `${title}: `, made("b", null, latest), ` · top ${number(most)}`), picture);
}

function path(line, most, steps) {
  const end = course[course.length - 1].at;
  const span = Math.max(60_000, end - course[0].at);
  return course.map((point, index) => {
    const x = (300 - (300 * (end - point.at)) / span).toFixed(1);
    const y = (80 - (76 * point[line]) / most).toFixed(1);
    return index === 0 ? `M${x} ${y}` : steps ? `H${x}V${y}` : `L${x} ${y}`;
  }).join("");
}

function trouble(status) {
  const said = [];
  if (status.reason) said.push(`Not steering the engine: ${status.reason}.`);
  if (status.settings.error) said.push(`Settings refused, those of revision ${status.settings.revision} stay: ${status.settings.error}`);
  return said.join(" ");
}

function emptiness(status) {
  if (!status.engine.info) return "No engine yet. This page fills as soon as the sidecar reaches it.";
  if (!status.steps.seen) return "No step yet. Send the engine a request and this page fills.";
  return "";
}

function tell(id, text) {
  const element = by(id);
  element.hidden = !text;
  if (element.textContent !== text) element.textContent = text;
}

function showAll(status) {
  const { info } = status.engine;
  const empty = emptiness(status);
  tell("trouble", trouble(status));
  tell("empty", empty);
  for (const id of ["now", "course", "switching"]) by(id).hidden = Boolean(empty);
  by("plan").hidden = status.buckets.length === 0;
  by("happened").hidden = status.events.length === 0;
  by("model").textContent = info ? [info.targetModel, info.draftModel].filter(Boolean).join(" + ") : "";
  show("tiles", tiles(status), (all) => all.map(tile));
  tell("regret", regretNote(status.regret));
  show("arms", [status.buckets, status.steps.batch, status.plan.version !== null], (data) => armsTable(...data));
  showMemory(status.memoryBytes, status.speculation.draftResidency);
  show("switch", switchPairs(status.switchCost), (pairs) =>
    pairs.flatMap(([title, value]) => [made("dt", null, title), made("dd", null, value)]));
  showEvents(status.events);
  markOld(document.querySelectorAll("section"), false);
  markOld(document.querySelectorAll("#now, #course, #memory"), !status.engine.connected);
  if (!empty) {
    remember(status);
    showCharts();
  }
  by("about").textContent = about(status);
}

function about({ settings, engine }) {
  const versions = engine.info ? `, Nightjar ${engine.info.nightjarVersion}, vLLM ${engine.info.vllmVersion}, γ up to ${engine.info.gammaMax}` : "";
  return `Policy ${settings.planner.policy}, settings of revision ${settings.revision}${versions}`;
}

/* What is shown grows old while the sidecar is away, and says so. */
let heardAt = null;

function showConnection(error, ready) {
  const live = by("live");
  const [state, text] = error ? ["lost", `Disconnected${heardAt ? `, as of ${new Date(heardAt).toLocaleTimeString()}` : ""}; trying again`]
    : ready ? ["live", "Live"] : ["idle", "Not steering"];
  if (error) markOld(document.querySelectorAll("section"), heardAt !== null);
  if (live.dataset.state !== state) live.dataset.state = state;
  if (live.textContent !== text) live.textContent = text;
  live.title = error ? String(error) : "";
}

function markOld(sections, old) {
  for (const section of sections) section.classList.toggle("old", old);
}

async function ask() {
  const answer = await fetch("status", { cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS) });
  if (!answer.ok) throw new Error(`status ${answer.status}`);
  return answer.json();
}

async function round() {
  let status;
  try {
    status = await ask();
  } catch (error) {
    showConnection(error, false);
    return;
  }
  heardAt = Date.now();
  showConnection(null, status.ready);
  showAll(status);
}

function failed(error) {
  tell("trouble", `This page cannot show what the sidecar says: ${error}. The same as JSON: status.`);
  console.error(error);
}

async function run() {
  for (;;) {
    const begun = performance.now();
    // Nobody looks: nobody asks.
    if (!document.hidden) await round().catch(failed);
    const rest = Math.max(0, PERIOD_MS - (performance.now() - begun));
    await new Promise((resolve) => setTimeout(resolve, rest));
  }
}

run();
