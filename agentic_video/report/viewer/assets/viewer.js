"use strict";
// All that is shown goes in as text (textContent, append of strings): what a model wrote is never parsed as HTML.
(() => {
  const $ = (id) => document.getElementById(id);
  const index = JSON.parse($("index").textContent);
  const C = index.columns;
  const COUNT = C.reward.length;
  const ROW = 60; // pixels, as in the style sheet
  const SPARE = 8; // rows beyond the visible ones
  const LONG = 4000; // characters of one text that are shown at first
  const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";

  // ---------------------------------------------------------------- small helpers

  /** An element with a class, attributes, and children (elements, or strings that become text). */
  function el(tag, options, ...children) {
    const node = document.createElement(tag);
    const { cls, on, ...attributes } = options || {};
    if (cls) node.className = cls;
    for (const [name, value] of Object.entries(attributes)) {
      if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
    }
    for (const [event, handler] of Object.entries(on || {})) node.addEventListener(event, handler);
    node.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
    return node;
  }
  const button = (label, action, options) => el("button", { type: "button", on: { click: action }, ...options }, label);
  const chip = (text, kind) => el("span", { cls: "chip " + (kind || "") }, text);
  const fact = (name, value) => el("span", { cls: "chip" }, name + " ", el("b", null, String(value)));
  const signed = (value, digits = 2) => (value === null ? "" : (value > 0 ? "+" : value < 0 ? "\u2212" : "") + Math.abs(value).toFixed(digits));
  const number = (value, digits = 2) => (value === null || value === undefined ? "\u2013" : value < 0 ? signed(value, digits) : value.toFixed(digits));
  const plural = (count, one, many) => count.toLocaleString("en") + " " + (count === 1 ? one : many || one + "s");
  const name = (column, i) => index.names[column][C[column][i]];
  const question = (i) => index.questions[C.question[i]];
  const isFrame = (part) => typeof part !== "string";
  const time = (seconds) => {
    if (seconds < 60) return seconds.toFixed(seconds < 10 ? 2 : 1) + " s";
    const whole = Math.floor(seconds), h = Math.floor(whole / 3600), m = Math.floor(whole / 60) % 60, s = whole % 60;
    return (h ? h + ":" + String(m).padStart(2, "0") : m) + ":" + String(s).padStart(2, "0");
  };
  /** Labels of an axis, all written the same way. */
  const axisTime = (value, end) => (end < 60 ? value.toFixed(end < 10 ? 1 : 0) + " s" : value < 60 ? "0:" + String(Math.floor(value)).padStart(2, "0") : time(value));
  const seconds = (value) => value.toFixed(2) + " s";

  const groups = new Map();
  for (let i = 0; i < COUNT; i++) {
    const members = groups.get(C.group[i]);
    if (members) members.push(i);
    else groups.set(C.group[i], [i]);
  }
  for (const members of groups.values()) members.sort((a, b) => C.rollout[a] - C.rollout[b] || a - b);

  function verdict(i) {
    const acc = C.acc[i];
    if (acc === null) return ["no-mark", "\u2013", "not scored", "none"];
    if (acc >= 1) return ["right-mark", "\u2713", "right", "right"];
    if (acc <= 0) return ["wrong-mark", "\u2717", "wrong", "wrong"];
    return ["part-mark", "\u25D0", "partly right", "part"];
  }
  function mark(i) {
    const [kind, sign, words] = verdict(i);
    return el("span", { cls: "mark " + kind, role: "img", "aria-label": words, title: words }, sign);
  }

  // ---------------------------------------------------------------- where episodes come from

  const pageRead = new Promise((resolve) => {
    if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", resolve, { once: true });
    else resolve();
  });

  /** Keeps the latest few results of a function of one number. */
  function remember(limit, load) {
    const kept = new Map();
    return (key) => {
      let value = kept.get(key);
      kept.delete(key);
      if (value === undefined) {
        value = load(key);
        value.catch(() => kept.delete(key)); // a failed request may be made again
      }
      kept.set(key, value);
      if (kept.size > limit) kept.delete(kept.keys().next().value);
      return value;
    };
  }

  function fileSource() {
    const block = async (id) => {
      await pageRead;
      const node = $(id);
      if (!node) throw new Error("this file was cut short: " + id + " is missing");
      return JSON.parse(node.textContent);
    };
    const chunk = remember(12, (k) => block("chunk-" + k));
    const strip = remember(12, (k) => block("strip-" + k));
    const words = new Map();
    const wordsOf = async (k) => {
      if (!words.has(k)) {
        const episodes = (await block("chunk-" + k)).episodes;
        words.set(k, episodes.map((episode, offset) => {
          const [id, text] = question(k * index.chunk + offset);
          return [id, text, ...episode.options, ...episode.turns.map((turn) => turn.text)].join(" ").replace(/\s+/g, " ").toLowerCase();
        }));
      }
      return words.get(k);
    };
    return {
      async detail(i) {
        const { openings, episodes } = await chunk(Math.floor(i / index.chunk));
        const episode = episodes[i % index.chunk];
        return { ...episode, opening: openings[episode.opening] };
      },
      async pictures(i, block_, parts) {
        const k = index.strips[C.question[i]];
        if (k === null || k === undefined) return { duration: null, pictures: {}, error: "no pictures in this file", quiet: true };
        const found = await strip(k);
        const lacking = !found.error && parts.some((part) => isFrame(part) && !(part[0] in found.pictures));
        return lacking ? { ...found, error: "no pictures of this episode in this file", quiet: true } : found;
      },
      async search(text, current) {
        const found = new Set();
        for (let k = 0; k * index.chunk < COUNT; k++) {
          (await wordsOf(k)).forEach((said, offset) => said.includes(text) && found.add(k * index.chunk + offset));
          if (k % 20 === 19) await new Promise((resolve) => setTimeout(resolve)); // the page stays responsive
          if (!current()) return null;
        }
        return found;
      },
    };
  }

  function serverSource() {
    const get = async (path) => {
      const reply = await fetch(path);
      if (!reply.ok) throw new Error("the server answered " + reply.status);
      return reply.json();
    };
    const episode = remember(200, (i) => get("/api/episode/" + i));
    return {
      detail: episode,
      pictures: (i, block) => get(`/api/pictures/${i}/${block}`),
      search: async (text) => new Set(await get("/api/search?q=" + encodeURIComponent(text))),
    };
  }
  const source = index.mode === "server" ? serverSource() : fileSource();

  // ---------------------------------------------------------------- filters and sorting

  const SORTS = {
    step: ["Step", (i) => C.step[i]],
    reward: ["Reward", (i) => C.reward[i]],
    advantage: ["Advantage", (i) => C.advantage[i]],
    acc: ["Correctness", (i) => C.acc[i]],
    calls: ["Calls", (i) => C.calls[i]],
    turns: ["Turns", (i) => C.turns[i]],
    frames: ["Frames", (i) => C.frames[i]],
    tokens: ["Tokens", (i) => C.tokens[i]],
    system: ["System", (i) => name("system", i)],
    end: ["End reason", (i) => name("end", i)],
    data_source: ["Data source", (i) => name("data_source", i)],
    question: ["Question", (i) => question(i)[1]],
  };
  const state = { sort: "step", down: true, text: "", choice: {}, range: {}, shown: [], at: -1, open: null };
  const CHOICES = {
    correct: ["Correctness", (i) => verdict(i)[3], { right: "right", wrong: "wrong", part: "partly right", none: "not scored" }],
    system: ["System", (i) => name("system", i)],
    end: ["End reason", (i) => name("end", i)],
    data_source: ["Data source", (i) => name("data_source", i)],
    set_name: ["Set", (i) => name("set_name", i)],
    group: ["Group", (i) => (groups.get(C.group[i]).length > 1 ? "several" : "single"), { several: "several rollouts", single: "one rollout" }],
  };
  const RANGES = { step: "Step", reward: "Reward", calls: "Calls", turns: "Turns" };

  function buildFilters() {
    for (const [key, [label]] of Object.entries(SORTS)) $("sort").append(el("option", { value: key }, label));
    for (const [key, [label, value, labels]] of Object.entries(CHOICES)) {
      const counts = new Map();
      for (let i = 0; i < COUNT; i++) counts.set(value(i), (counts.get(value(i)) || 0) + 1);
      if (counts.size < 2) continue;
      const select = el("select", { "data-choice": key }, el("option", { value: "" }, "all"));
      for (const [one, count] of [...counts].sort()) {
        select.append(el("option", { value: "=" + one }, `${(labels && labels[one]) || one} (${count.toLocaleString("en")})`));
      }
      select.addEventListener("change", () => { state.choice[key] = select.value; refilter(); });
      $("fields").append(el("label", null, label, select));
    }
    for (const [key, label] of Object.entries(RANGES)) {
      const bound = (which, words) => el("input", { type: "number", step: "any", placeholder: words, "aria-label": `${label} ${words}`,
        on: { input: (event) => { (state.range[key] = state.range[key] || {})[which] = event.target.valueAsNumber; refilter(); } } });
      $("fields").append(el("div", { cls: "span" }, label, el("div", { cls: "pair" }, bound("low", "from"), bound("high", "to"))));
    }
    $("sort").addEventListener("change", () => { state.sort = $("sort").value; refilter(); });
    $("direction").addEventListener("click", () => { state.down = !state.down; refilter(); });
    let typed = 0;
    $("search").addEventListener("input", () => { clearTimeout(typed); typed = setTimeout(startSearch, 150); });
    $("filters").addEventListener("submit", (event) => { event.preventDefault(); startSearch(); });
    $("clear").addEventListener("click", () => {
      for (const node of $("fields").querySelectorAll("select, input")) node.value = "";
      $("search").value = "";
      state.choice = {}; state.range = {};
      startSearch();
      refilter();
    });
  }

  let searches = 0, found = null;
  async function startSearch() {
    const mine = ++searches;
    const text = $("search").value.replace(/\s+/g, " ").trim().toLowerCase();
    if (text === state.text) return;
    state.text = text;
    if (!text) { found = null; refilter(); return; }
    $("count").textContent = "searching \u2026";
    try {
      const result = await source.search(text, () => mine === searches);
      if (mine !== searches) return;
      found = result;
      refilter();
    } catch (error) {
      $("count").textContent = "the search failed: " + error.message;
    }
  }

  function refilter() {
    const choices = Object.entries(state.choice).filter(([, wanted]) => wanted);
    const ranges = Object.entries(state.range).filter(([, { low, high }]) => Number.isFinite(low) || Number.isFinite(high));
    const shown = [];
    for (let i = 0; i < COUNT; i++) {
      if (found && !found.has(i)) continue;
      if (!choices.every(([key, wanted]) => "=" + CHOICES[key][1](i) === wanted)) continue;
      if (!ranges.every(([key, { low, high }]) => {
        const value = C[key][i];
        return value !== null && !(value < low) && !(value > high); // not a number: no bound
      })) continue;
      shown.push(i);
    }
    const value = SORTS[state.sort][1], sign = state.down ? -1 : 1;
    const keys = new Map(shown.map((i) => [i, value(i)]));
    shown.sort((a, b) => {
      const x = keys.get(a), y = keys.get(b);
      if (x === y) return a - b;
      if (x === null) return 1; // episodes without the value come last either way
      if (y === null) return -1;
      return (x < y ? -1 : 1) * sign;
    });
    state.shown = shown;
    const active = choices.length + ranges.length;
    $("active").textContent = active ? `(${active})` : "";
    $("direction").textContent = state.down ? "\u2193" : "\u2191";
    $("direction").setAttribute("aria-label", state.down ? "Descending; change to ascending" : "Ascending; change to descending");
    $("direction").title = state.down ? "Descending" : "Ascending";
    const total = plural(COUNT, "episode");
    const rewards = shown.map((i) => C.reward[i]).filter((reward) => reward !== null);
    const mean = rewards.length ? `, mean reward ${number(rewards.reduce((a, b) => a + b, 0) / rewards.length)}` : "";
    $("count").textContent = (shown.length === COUNT ? total : `${shown.length.toLocaleString("en")} of ${total}`) + mean;
    state.at = state.open && state.open.kind === "e" ? shown.indexOf(state.open.at) : -1;
    $("spacer").style.height = shown.length * ROW + "px";
    $("list").scrollTop = 0;
    if (state.at >= 0) reveal(state.at);
    drawList(true);
  }

  // ---------------------------------------------------------------- the list: only visible rows exist

  const severalRollouts = C.rollout.some((rollout) => rollout > 0);
  const rows = new Map();
  function drawList(anew) {
    const list = $("list");
    const first = Math.max(0, Math.floor(list.scrollTop / ROW) - SPARE);
    const last = Math.min(state.shown.length, Math.ceil((list.scrollTop + list.clientHeight) / ROW) + SPARE);
    for (const [place, node] of rows) {
      if (anew || place < first || place >= last) { node.remove(); rows.delete(place); }
    }
    for (let place = first; place < last; place++) {
      if (!rows.has(place)) { const node = rowAt(place); rows.set(place, node); list.append(node); }
    }
    for (const [place, node] of rows) node.setAttribute("aria-selected", String(place === state.at));
    if (rows.has(state.at)) list.setAttribute("aria-activedescendant", rows.get(state.at).id);
    else list.removeAttribute("aria-activedescendant");
  }

  function rowAt(place) {
    const i = state.shown[place];
    const meta = [
      C.step[i] === null ? "" : "step " + C.step[i],
      severalRollouts ? "rollout " + C.rollout[i] : "",
      index.names.system.length > 1 ? name("system", i) : "",
      name("end", i) === "answer" ? "answer " + C.answer[i] : name("end", i).replace("_", " "),
      plural(C.calls[i], "call") + (C.refused[i] ? `, ${C.refused[i]} refused` : ""),
    ].filter(Boolean).join(" \u00B7 ");
    const node = el("div", { cls: "row", role: "option", id: "row-" + i, "aria-posinset": place + 1, "aria-setsize": state.shown.length,
      on: { click: () => choose(place, true) } },
      mark(i),
      el("span", { cls: "what" }, question(i)[1]),
      el("span", { cls: "reward", title: "reward" }, number(C.reward[i])),
      el("span", { cls: "meta" }, meta),
      C.advantage[i] === null ? null : el("span", { cls: "advantage", title: "advantage in its group" }, "adv " + signed(C.advantage[i], 2)));
    node.style.top = place * ROW + "px";
    return node;
  }

  function reveal(place) {
    const list = $("list"), top = place * ROW;
    if (top < list.scrollTop) list.scrollTop = top;
    else if (top + ROW > list.scrollTop + list.clientHeight) list.scrollTop = top + ROW - list.clientHeight;
  }

  const narrow = () => matchMedia("(max-width: 860px)").matches;
  function choose(place, enter) {
    if (!state.shown.length) return;
    state.at = Math.min(Math.max(place, 0), state.shown.length - 1);
    reveal(state.at);
    drawList(false);
    if (enter || !narrow() || document.body.dataset.view === "detail") go("e", state.shown[state.at]);
  }

  // ---------------------------------------------------------------- addresses: #e=12 an episode, #g=3 a group

  function go(kind, at) {
    const hash = `#${kind}=${at}`;
    if (location.hash === hash) route();
    else if (state.open) { history.replaceState(null, "", hash); route(); } // "back" leads to the list, not through all
    else location.hash = hash;
  }

  function route() {
    const match = /^#([eg])=(\d{1,9})$/.exec(location.hash);
    const at = match ? Number(match[2]) : -1;
    const known = match && (match[1] === "e" ? at < COUNT : groups.has(at));
    state.open = known ? { kind: match[1], at } : null;
    document.body.dataset.view = known ? "detail" : "list";
    if (!known) { welcome(); return; }
    const i = match[1] === "e" ? at : groups.get(at)[0];
    const place = state.shown.indexOf(i);
    if (match[1] === "e" && place >= 0) { state.at = place; reveal(place); }
    drawList(false);
    $("right").scrollTop = 0;
    (match[1] === "e" ? showEpisode(at) : showGroup(at)).catch((error) => {
      $("detail").replaceChildren(el("p", { cls: "note bad", role: "alert" }, "This can't be shown: " + error.message));
    });
  }
  function home() {
    history.replaceState(null, "", location.pathname + location.search);
    route();
    $("list").focus();
    drawList(true);
  }

  function welcome() {
    document.title = index.title;
    $("detail").replaceChildren(el("p", { cls: "empty" }, "Choose an episode from the list, or press ", el("kbd", null, "j"), "."));
    drawList(false);
  }

  // ---------------------------------------------------------------- an episode

  let drawn = 0; // which drawing is the latest: an earlier one that arrives later is dropped
  let lastEpisode = null;
  async function showEpisode(i) {
    const mine = ++drawn;
    lastEpisode = i;
    const detail = await source.detail(i);
    if (mine !== drawn) return;
    const members = groups.get(C.group[i]);
    document.title = `${question(i)[0]} \u2013 ${index.title}`;
    const place = state.shown.indexOf(i);
    const parts = [
      el("div", { cls: "head" },
        button("\u2190 List", home, { cls: "back" }),
        button("\u2039 Previous", () => choose(place - 1, true), { disabled: place <= 0, title: "k" }),
        button("Next \u203A", () => choose(place + 1, true), { disabled: place < 0 || place >= state.shown.length - 1, title: "j" }),
        el("span", { cls: "push" }),
        members.length > 1 ? button(`Compare ${members.length} rollouts`, () => go("g", C.group[i]), { title: "g" }) : null),
      ...questionHead(i, detail, C.answer[i]),
      factsOf(i, detail),
    ];
    if (detail.error) parts.push(el("p", { cls: "note bad" }, detail.error));
    const timelineCard = el("section", { cls: "card", "aria-label": "Timeline" });
    const talk = conversation(i, detail);
    const draw = (duration) => timelineCard.replaceChildren(
      el("h3", null, "Where it looked", el("span", { cls: "hint" }, duration ? time(duration) + " of video" : "scale: to the last frame shown")),
      timeline(lanesOf(detail, talk.jump), duration || lastTime(detail)));
    draw(null);
    const rewardCard = rewards(i, detail, members);
    parts.push(rewardCard ? el("div", { cls: "columns" }, timelineCard, rewardCard) : timelineCard, talk.node, ...aboutOf(detail));
    $("detail").replaceChildren(...parts);
    talk.watch((duration) => mine === drawn && duration && draw(duration));
  }

  function questionHead(i, detail, given) {
    const nodes = [el("h2", { cls: "question" }, question(i)[1])];
    if (detail.options.length) {
      // An answer may be an option's text, its letter, or begin with the letter ("B. teal"); others mark no option.
      const said = given === null ? "" : given.trim().toLowerCase();
      const same = LETTERS[detail.options.findIndex((option) => option.trim().toLowerCase() === said)];
      const letter = given === null ? "" : same || (/^\s*\(?([A-Za-z])(?:[).:\s]|$)/.exec(given) || ["", ""])[1].toUpperCase();
      nodes.push(el("ul", { cls: "options" }, ...detail.options.map((option, k) => {
        const right = LETTERS[k] === detail.right, chosen = LETTERS[k] === letter;
        const says = [right ? "right answer" : "", chosen ? "given" : ""].filter(Boolean).join(", ");
        return el("li", { cls: right ? "is-right" : chosen ? "is-wrong" : "" }, el("b", null, LETTERS[k] + ". "), option,
          says ? el("small", null, " \u2013 " + says) : null);
      })));
    } else nodes.push(el("div", { cls: "facts" }, fact("reference answer", detail.right)));
    return nodes;
  }

  function factsOf(i, detail) {
    const [, , words, kind] = verdict(i);
    const end = name("end", i);
    return el("div", { cls: "facts" },
      chip(words, { right: "good", wrong: "bad", part: "mid" }[kind]),
      end === "answer" ? fact("answered", C.answer[i]) : chip("ended: " + end.replace("_", " "), "mid"),
      C.step[i] === null ? null : fact("step", C.step[i]),
      fact("rollout", C.rollout[i]), fact("system", name("system", i)), fact("data", name("data_source", i)),
      fact("turns", C.turns[i]), fact("calls", C.calls[i]),
      C.refused[i] ? chip(C.refused[i] + " refused", "bad") : null,
      fact("frames", C.frames[i]), C.tokens[i] ? fact("tokens", C.tokens[i].toLocaleString("en")) : null,
      fact("id", question(i)[0]));
  }

  function aboutOf(detail) {
    const open = (words, value) => Object.keys(value).length
      ? el("details", null, el("summary", null, words), el("pre", { cls: "json" }, JSON.stringify(value, null, 2))) : null;
    return [el("section", { cls: "card", "aria-label": "About" },
      el("p", { cls: "note" }, "video: " + detail.video), open("Who made it (provenance)", detail.provenance), open("The row's extra fields", detail.extra))];
  }

  // ---------------------------------------------------------------- the timeline

  const framesOf = (parts) => parts.filter(isFrame);
  const openingParts = (detail) => detail.opening.flatMap((message) => message.parts);
  function lastTime(detail) {
    const all = [...openingParts(detail), ...detail.turns.flatMap((turn) => turn.parts)];
    return Math.max(0.001, ...framesOf(all).map((frame) => frame[1]));
  }

  function lanesOf(detail, jump) {
    const overview = framesOf(openingParts(detail));
    const lanes = [{ name: "overview", frames: overview, overview: true, tail: plural(overview.length, "frame"), block: 0, jump }];
    detail.turns.forEach((turn, k) => {
      const frames = framesOf(turn.parts);
      const kind = turn.action.kind;
      const why = frames.length ? "" : kind === "answer" ? "answers" : kind === "illegal" ? "illegal turn" : turn.illegal ? "refused" : "nothing was shown";
      lanes.push({ name: "turn " + (k + 1), frames, why, tail: frames.length ? plural(frames.length, "frame") : "", block: k + 1, jump });
    });
    return lanes;
  }

  function timeline(lanes, duration) {
    const percent = (value) => Math.min(100, Math.max(0, (100 * value) / duration)) + "%";
    const node = el("div", { cls: "timeline" });
    for (const lane of lanes) {
      const times = lane.frames.map((frame) => frame[1]);
      const track = el("div", { cls: "track" + (lane.overview ? " overview" : ""), role: "img",
        "aria-label": `${lane.name}: ${times.length ? plural(times.length, "frame") + " at " + times.map((t) => t.toFixed(1)).join(", ") + " seconds" : lane.why || "nothing"}` });
      if (times.length > 1 && !lane.overview) {
        const band = el("span", { cls: "band" });
        const low = Math.min(...times), high = Math.max(...times);
        band.style.left = percent(low);
        band.style.width = `calc(${percent(high)} - ${percent(low)})`;
        track.append(band);
      }
      for (const frame of lane.frames) {
        const tick = el("span", { cls: "tick", title: `${seconds(frame[1])}, frame ${frame[0]}` });
        tick.style.left = percent(frame[1]);
        track.append(tick);
      }
      if (lane.why) track.append(el("span", { cls: "none" }, lane.why));
      node.append(
        lane.jump ? button(lane.name, () => lane.jump(lane.block), { cls: "name" }) : el("span", { cls: "name" }, lane.name),
        track, el("span", { cls: "tail" }, lane.tail || ""));
    }
    const axis = el("div", { cls: "axis", "aria-hidden": "true" });
    const steps = lanes[0].jump && !narrow() ? 4 : 2;
    for (let k = 0; k <= steps; k++) {
      const label = el("span", null, axisTime((duration * k) / steps, duration));
      label.style.left = (100 * k) / steps + "%";
      axis.append(label);
    }
    node.append(el("span"), axis, el("span", { cls: "tail" }));
    return node;
  }

  // ---------------------------------------------------------------- rewards

  function bars(terms, total) {
    const values = terms.map(([, value]) => value || 0);
    const low = Math.min(0, ...values), high = Math.max(0, ...values), span = high - low || 1;
    const node = el("div", { cls: "bars", role: "group", "aria-label": "Reward terms" });
    for (const [label, value] of terms) {
      const beam = el("span", { cls: "beam", "aria-hidden": "true" });
      const bar = el("i", { cls: value < 0 ? "minus" : "" }), zero = el("u");
      bar.style.left = (100 * (Math.min(0, value) - low)) / span + "%";
      bar.style.width = (100 * Math.abs(value)) / span + "%";
      zero.style.left = (100 * -low) / span + "%";
      if (value) beam.append(bar);
      beam.append(zero);
      node.append(el("span", { cls: "of" }, label), beam, el("span", { cls: "value" }, signed(value)));
    }
    if (total !== null) node.append(el("span", { cls: "of total" }, "reward"), el("span"), el("span", { cls: "value total" }, number(total)));
    return node;
  }

  function rewards(i, detail, members) {
    const all = Object.entries(detail.rewards);
    if (!all.length) return null;
    const terms = all.filter(([key, value]) => key.startsWith("term_") && value !== null).map(([key, value]) => [key.slice(5), value]);
    const failed = ["judge_failed", "verifier_failed"].filter((key) => detail.rewards[key]);
    const rewarded = C.reward[i] !== null; // an evaluation's episode has grades only
    const title = rewarded || terms.length ? "Reward" : "Grade";
    const card = el("section", { cls: "card", "aria-label": title }, el("h3", null, title));
    if (title === "Reward") card.append(bars(terms, C.reward[i]));
    const facts = el("div", { cls: "sums" });
    for (const key of ["acc", "acc_robust", "format"]) if (key in detail.rewards) facts.append(fact(key.replace("_", " "), number(detail.rewards[key])));
    if (C.advantage[i] !== null) facts.append(fact("advantage", signed(C.advantage[i], 3)));
    for (const key of failed) facts.append(chip(key.replace("_", " "), "bad"));
    if (title === "Reward") facts.style.margin = "0.8rem 0 0";
    card.append(facts);
    const numbers = Object.fromEntries(all.filter(([key]) => !key.startsWith("end_")));
    card.append(el("details", null, el("summary", null, "All numbers"), el("pre", { cls: "json" }, JSON.stringify(numbers, null, 2))));
    if (rewarded && members.length < 2) card.append(el("p", { cls: "note" }, "The only recorded rollout of its group: no advantage."));
    return card;
  }

  // ---------------------------------------------------------------- the conversation

  function longText(text, cls) {
    const node = el("div", { cls });
    node.textContent = text.length > LONG ? text.slice(0, LONG) : text;
    if (text.length <= LONG) return node;
    const more = button(`Show all ${text.length.toLocaleString("en")} characters`, () => { node.textContent = text; more.remove(); });
    return el("div", null, node, more);
  }

  /** Texts and frames in the order in which they were shown; a short text right before a frame goes with it. */
  function shownParts(parts, block, figures) {
    const nodes = [];
    let strip = null;
    for (let k = 0; k < parts.length; k++) {
      const part = parts[k];
      if (!isFrame(part)) {
        const label = k + 1 < parts.length && isFrame(parts[k + 1]) && part.trim().length <= 40;
        if (!label) {
          if (part.trim()) { nodes.push(longText(part.replace(/^\n+|\n+$/g, ""), "text")); strip = null; }
          continue;
        }
      } else {
        if (!strip) { strip = el("div", { cls: "strip", tabindex: "0", role: "group", "aria-label": "Frames" }); nodes.push(strip); }
        const before = k && !isFrame(parts[k - 1]) && parts[k - 1].trim().length <= 40 ? parts[k - 1].trim() : "";
        const [at, when, width, height, clip] = part;
        const picture = button("", () => enlarge(figure), { cls: "picture", "aria-label": `Frame ${at} at ${seconds(when)}, enlarge` });
        picture.style.setProperty("--aspect", `${width} / ${height}`);
        const figure = { at, when, width, height, clip, before, picture, block, source: null };
        figures.push(figure);
        strip.append(el("figure", null, picture, el("figcaption", null,
          el("b", null, seconds(when)), ` #${at}`, clip ? el("span", { cls: "note", title: "one of the frames that the model saw as one video" }, `\u25B6 ${clip[0]}/${clip[1]}`) : null, before ? el("span", { title: "as the model saw it: " + before }, before) : null)));
      }
    }
    return nodes;
  }

  function enlarge(figure) {
    const caption = `${seconds(figure.when)}, frame ${figure.at}; shown to the model as ${figure.width} \u00D7 ${figure.height} pixels${figure.clip ? `, frame ${figure.clip[0]} of a video of ${figure.clip[1]}` : ""}`;
    const body = [el("p", { cls: "note" }, caption)];
    if (figure.source) body.unshift(el("img", { src: figure.source, alt: "Frame at " + seconds(figure.when) }));
    if (figure.before) body.push(el("p", { cls: "note" }, "text before it: " + figure.before));
    popup("Frame", ...body);
  }

  function actionOf(turn) {
    const action = turn.action;
    if (action.kind === "calls") return action.calls.map((call) => el("code", null, `${call.name} ${JSON.stringify(call.arguments)}`));
    if (action.kind === "answer") return [el("code", null, "answer: " + action.text.slice(0, LONG))];
    return [el("code", null, "illegal: " + (action.reason || ""))];
  }

  const SHADES = [[-0.05, ""], [-0.3, "p1"], [-1, "p2"], [-3, "p3"], [-Infinity, "p4"]];
  function tokensOf(tokens) {
    return el("div", { cls: "text" }, ...tokens.map(([text, logProb]) => {
      const shade = logProb === null ? "" : SHADES.find(([above]) => logProb >= above)[1];
      const title = logProb === null ? JSON.stringify(text) : `${JSON.stringify(text)}: log-probability ${logProb.toFixed(3)}, probability ${Math.exp(logProb).toFixed(3)}`;
      return el("span", { cls: "token " + shade, title }, text);
    }));
  }

  let withTokens = false;
  function conversation(i, detail) {
    const figures = [], blocks = [];
    const node = el("section", { cls: "card", "aria-label": "Conversation" });
    const anyTokens = detail.turns.some((turn) => turn.tokens);
    const anyLogs = detail.turns.some((turn) => turn.tokens && turn.tokens.some(([, logProb]) => logProb !== null));
    const swaps = [];
    const toggle = anyTokens ? button(anyLogs ? "Tokens and log-probabilities" : "Tokens", () => {
      withTokens = !withTokens;
      toggle.setAttribute("aria-pressed", String(withTokens));
      swaps.forEach((swap) => swap());
    }, { "aria-pressed": String(withTokens) }) : null;
    const scale = anyLogs ? el("span", { cls: "legend", title: "shades of the tokens' probabilities" },
      el("span", null, "p:"), ...[["\u2265 .95", ""], ["\u2265 .74", "p1"], ["\u2265 .37", "p2"], ["\u2265 .05", "p3"], ["less", "p4"]].map(([words, cls]) => el("span", { cls: "token " + cls }, words))) : null;
    node.append(el("h3", null, "Conversation",
      el("span", { cls: "legend" },
        el("span", null, el("span", { cls: "swatch model" }), "written by the model, trained on (mask 1)"),
        el("span", null, el("span", { cls: "swatch" }), "shown by the environment (mask 0)")),
      toggle, scale));
    const opening = el("div");
    blocks.push(opening);
    for (const message of detail.opening) {
      opening.append(el("div", { cls: "message" }, el("div", { cls: "who" }, el("strong", null, message.role)), ...shownParts(message.parts, 0, figures)));
    }
    node.append(opening);
    detail.turns.forEach((turn, k) => {
      const plain = longText(turn.text, "text");
      const body = el("div", null, plain);
      const swap = () => body.replaceChildren(withTokens && turn.tokens ? tokensOf(turn.tokens) : plain);
      swaps.push(swap);
      if (withTokens) swap();
      const message = el("div", { cls: "message model" },
        el("div", { cls: "who" }, el("strong", null, "turn " + (k + 1)), plural(turn.num_tokens, "token"),
          turn.finished ? null : chip("cut at its token limit", "mid"),
          turn.legal ? chip(plural(turn.legal, "call") + " carried out", "good") : null,
          turn.illegal ? chip(turn.illegal + " refused", "bad") : null),
        body, el("div", { cls: "action", "aria-label": "What the system read in it" }, ...actionOf(turn)));
      const block = el("div", null, message);
      if (turn.parts.length) {
        block.append(el("div", { cls: "message" }, el("div", { cls: "who" }, el("strong", null, "observation")), ...shownParts(turn.parts, k + 1, figures)));
      }
      blocks.push(block);
      node.append(block);
    });
    const end = name("end", i);
    node.append(el("p", { cls: "note" }, `End: ${end.replace("_", " ")}${C.tokens[i] ? `, ${C.tokens[i].toLocaleString("en")} tokens in all` : ""}.`));
    return {
      node,
      jump(block) {
        blocks[block].scrollIntoView({ block: "start", behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
        blocks[block].classList.remove("flash");
        requestAnimationFrame(() => blocks[block].classList.add("flash"));
      },
      watch(told) { lazyPictures(i, detail, blocks, figures, told); },
    };
  }

  /** Fetch a block's pictures when it comes near the screen. */
  function lazyPictures(i, detail, blocks, figures, told) {
    const parts = [openingParts(detail), ...detail.turns.map((turn) => turn.parts)];
    const load = async (block) => {
      const mine = figures.filter((figure) => figure.block === block);
      if (!mine.length) return;
      let strip;
      try {
        strip = await source.pictures(i, block, parts[block]);
      } catch (error) {
        strip = { duration: null, pictures: {}, error: error.message };
      }
      told(strip.duration);
      for (const figure of mine) {
        const picture = strip.pictures[figure.at];
        if (picture) {
          figure.source = "data:image/jpeg;base64," + picture;
          figure.picture.replaceChildren(el("img", { src: figure.source, alt: "" }));
        } else figure.picture.replaceChildren(el("span", null, strip.quiet ? "not in this file" : "no picture"));
      }
      if (strip.error) blocks[block].append(el("p", { cls: strip.quiet ? "note" : "note bad" }, (strip.quiet ? "" : "Pictures: ") + strip.error +
        (strip.quiet ? " (--images N makes more, --serve makes all)." : "")));
    };
    const observer = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        observer.unobserve(entry.target);
        load(blocks.indexOf(entry.target));
      }
    }, { root: $("right"), rootMargin: "400px" });
    blocks.forEach((block) => observer.observe(block));
  }

  // ---------------------------------------------------------------- a group

  async function showGroup(group) {
    const mine = ++drawn;
    const members = groups.get(group);
    const details = await Promise.all(members.map((i) => source.detail(i)));
    if (mine !== drawn) return;
    const first = members[0];
    document.title = `${question(first)[0]}, group \u2013 ${index.title}`;
    const scored = members.map((i) => C.reward[i]).filter((reward) => reward !== null);
    const mean = scored.reduce((a, b) => a + b, 0) / (scored.length || 1);
    const deviation = scored.length > 1 ? Math.sqrt(scored.reduce((a, b) => a + (b - mean) ** 2, 0) / (scored.length - 1)) : null;
    const duration = Math.max(...details.map(lastTime));
    const reach = Math.max(1e-9, ...members.map((i) => Math.abs(C.advantage[i] || 0)));
    const partial = index.group_size && members.length < index.group_size && C.step[first] !== null
      ? ` The run had ${index.group_size} rollouts a question: only these were recorded, so the trainer's own advantages differ.` : "";
    const sums = el("div", { cls: "sums" }, C.step[first] === null ? null : fact("step", C.step[first]), fact("rollouts", members.length),
      fact("mean reward", number(mean, 3)), fact("standard deviation", number(deviation, 3)),
      fact("right", members.filter((i) => C.acc[i] >= 1).length + " of " + members.length), fact("id", question(first)[0]));
    const formula = index.by_std ? "Advantage: (reward \u2212 mean) / (standard deviation + 1e-6), over the rollouts shown here." : "Advantage: reward \u2212 mean, over the rollouts shown here (this run does not divide by the standard deviation).";
    $("detail").replaceChildren(
      el("div", { cls: "head" }, button("\u2190 List", home, { cls: "back" }), button("\u2190 Episode", () => back(members)), el("span", { cls: "push" })),
      ...questionHead(first, details[0], null), sums, el("p", { cls: "note formula" }, formula + partial),
      el("div", { cls: "members", tabindex: "0", role: "group", "aria-label": "Rollouts side by side" },
        ...members.map((i, k) => memberOf(i, details[k], duration, reach))));
  }
  const back = (members) => go("e", members.includes(lastEpisode) ? lastEpisode : members[0]);

  function memberOf(i, detail, duration, reach) {
    const beam = el("span", { cls: "beam", "aria-hidden": "true" }), advantage = C.advantage[i];
    if (advantage !== null) {
      const bar = el("i", { cls: advantage < 0 ? "minus" : "" }), zero = el("u");
      bar.style.left = 50 + Math.min(0, (50 * advantage) / reach) + "%";
      bar.style.width = (50 * Math.abs(advantage)) / reach + "%";
      zero.style.left = "50%";
      if (advantage) beam.append(bar);
      beam.append(zero);
    }
    const card = el("article", { cls: "member" + (i === lastEpisode ? " current" : ""), "aria-label": "Rollout " + C.rollout[i] },
      el("div", { cls: "top" }, mark(i), button("Rollout " + C.rollout[i], () => go("e", i), { title: "Open this episode" }),
        el("span", { cls: "big", title: "reward" }, number(C.reward[i]))),
      el("div", { cls: "bars" }, el("span", { cls: "of" }, "advantage"), beam, el("span", { cls: "value" }, advantage === null ? "\u2013" : signed(advantage, 3))),
      el("div", { cls: "facts" },
        name("end", i) === "answer" ? fact("answer", C.answer[i]) : chip(name("end", i).replace("_", " "), "mid"),
        fact("calls", C.calls[i]), C.refused[i] ? chip(C.refused[i] + " refused", "bad") : null, fact("frames", C.frames[i])),
      timeline(lanesOf(detail, null), duration));
    const talk = el("div");
    talk.style.marginTop = "0.7rem";
    detail.turns.forEach((turn, k) => talk.append(el("div", { cls: "message model" },
      el("div", { cls: "who" }, el("strong", null, "turn " + (k + 1)), plural(turn.num_tokens, "token"), turn.illegal ? chip("refused", "bad") : null),
      longText(turn.text, "text"))));
    card.append(talk);
    return card;
  }

  // ---------------------------------------------------------------- the rest of the page

  function popup(title, ...body) {
    $("dialog").setAttribute("aria-label", title);
    $("dialog-body").replaceChildren(el("h2", null, title), ...body);
    if (!$("dialog").open) $("dialog").showModal();
  }

  function notes() {
    const { videos, problems } = index;
    const note = (words, intro, items, total) => $("notes").append(button(words, () => popup(words, el("p", { cls: "note" }, intro),
      el("ul", null, ...items.map((item) => el("li", null, item))), total > items.length ? el("p", null, `and ${total - items.length} more`) : null)));
    if (videos.missing) {
      note(`${videos.missing.toLocaleString("en")} of ${plural(videos.total, "video")} missing`, "These files are not where the records say; the command's --videos FOLDER looks elsewhere.", videos.paths, videos.missing);
    }
    if (problems.total) note(plural(problems.total, "line") + " left out", "These lines are no records that this version reads.", problems.messages, problems.total);
  }

  const THEMES = { auto: "\u25D1 Auto", light: "\u2600 Light", dark: "\u263E Dark" };
  function setTheme(theme) {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    $("theme").textContent = THEMES[theme];
    $("theme").setAttribute("aria-label", `Colours: ${theme}; change`);
    $("theme").dataset.value = theme;
    try { localStorage.setItem("agentic-video-theme", theme); } catch { /* a browser may refuse to keep it */ }
  }
  function savedTheme() {
    try {
      const theme = localStorage.getItem("agentic-video-theme");
      return Object.hasOwn(THEMES, theme) ? theme : "auto";
    } catch { return "auto"; }
  }

  const KEYS = [["j, k", "next, previous episode (in a group: rollout)"], ["Enter", "open the chosen episode"], ["g", "the episode's group, and back"],
    ["t", "tokens"], ["/", "search"], ["Esc", "leave the search, close, back to the list"], ["?", "this"]];
  const help = () => popup("Keyboard", el("dl", null, ...KEYS.flatMap(([key, what]) => [el("dt", null, el("kbd", null, key)), el("dd", null, what)])));

  function step(by) {
    if (state.open && state.open.kind === "g") {
      const node = document.querySelector(".members");
      if (node) node.scrollBy({ left: by * 280 });
    } else choose(state.at + by, false);
  }

  function onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || $("dialog").open) return;
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
    if (event.key === "Escape") {
      if (typing) { event.target.blur(); $("list").focus(); } else if (state.open) home();
      else return;
    } else if (typing) return;
    else if (event.key === "j" || (event.key === "ArrowDown" && event.target === $("list"))) step(1);
    else if (event.key === "k" || (event.key === "ArrowUp" && event.target === $("list"))) step(-1);
    else if (event.key === "Home" && event.target === $("list")) choose(0, false);
    else if (event.key === "End" && event.target === $("list")) choose(state.shown.length - 1, false);
    else if (event.key === "Enter" && event.target === $("list") && state.at >= 0) { choose(state.at, true); $("right").focus(); }
    else if (event.key === "/") { document.body.dataset.view = "list"; $("search").focus(); $("search").select(); }
    else if (event.key === "g" && state.open) {
      if (state.open.kind === "g") back(groups.get(state.open.at));
      else if (groups.get(C.group[state.open.at]).length > 1) go("g", C.group[state.open.at]);
    } else if (event.key === "t") {
      const toggle = document.querySelector("#detail button[aria-pressed]");
      if (toggle) toggle.click();
    } else if (event.key === "?") help();
    else return;
    event.preventDefault();
  }

  $("title").textContent = index.title;
  setTheme(savedTheme());
  $("theme").addEventListener("click", () => {
    const order = Object.keys(THEMES);
    setTheme(order[(order.indexOf($("theme").dataset.value) + 1) % order.length]);
  });
  $("keys").addEventListener("click", help);
  $("list").addEventListener("scroll", () => drawList(false), { passive: true });
  new ResizeObserver(() => drawList(false)).observe($("list"));
  document.addEventListener("keydown", onKey);
  addEventListener("hashchange", route);
  notes();
  buildFilters();
  refilter();
  route();
  document.documentElement.dataset.ready = "true";
})();
