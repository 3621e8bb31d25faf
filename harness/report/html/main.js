// The page. The filter, the chosen kernels and the address (#case=3, #filter=paged) decide what is shown.
const state = { filter: "", matches: () => true, hidden: new Set(), case_index: -1 };

function is_shown(r) {
  return !state.hidden.has(r.kernel) && state.matches(r);
}

function shown() {
  return results.filter(is_shown);
}

function address(index) {
  const parts = new URLSearchParams();
  if (state.filter) parts.set("filter", state.filter);
  if (index >= 0) parts.set("case", String(index));
  return `#${parts}`;
}

function case_link(index) {
  return address(index);
}

function open_case(index) {
  location.hash = address(index);
}

function back_to_list(event) {
  event.preventDefault();
  location.hash = address(-1);
}

/** Waits for a pause in typing, so that charts are drawn once. */
function after_pause(milliseconds, action) {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(action, milliseconds);
  };
}

function make_page() {
  const sections = [data.comparison ? comparison_section() : null, axis_section(), versus_section(), roofline_plot(), error_plot()].filter(Boolean);
  const table = result_table();
  const list = el("div", { id: "list" }, token_section(), sections.map((s) => s.figure), table.node, environment_section());
  const main = document.getElementById("main");
  const problem = el("p", { class: "filter-error", role: "alert" });
  const count = el("output", { class: "count", for: "filter" });
  const box = el("input", {
    id: "filter", type: "search", autocomplete: "off", spellcheck: "false", placeholder: "Filter: paged head_dim=128 max_k>=8k /d(64|128)/ -skip",
    "aria-label": "Filter by id, parameter or figure", "aria-describedby": "filter-help",
  });
  let case_view = null;

  const draw_list = () => {
    sections.forEach((s) => s.render());
    table.render();
    count.textContent = `${plural(shown().length, "result")}`;
  };
  const apply_filter = () => {
    const parsed = parse_filter(state.filter);
    state.matches = parsed.matches;
    problem.textContent = parsed.error;
    box.setAttribute("aria-invalid", parsed.error ? "true" : "false");
  };
  const redraw = () => (case_view ? case_view.render() : draw_list());
  const legend = el("div", { class: "legend", role: "group", "aria-label": "Kernels shown" });
  const draw_legend = () => fill(legend, kernels.filter((k) => k !== "none").map((kernel) => el("button", {
    type: "button", class: "kernel", "data-series": String(kernels.indexOf(kernel) % 8), "aria-pressed": String(!state.hidden.has(kernel)),
    on: { click: (event) => {
      state.hidden.has(kernel) ? state.hidden.delete(kernel) : state.hidden.add(kernel);
      event.currentTarget.setAttribute("aria-pressed", String(!state.hidden.has(kernel)));
      redraw();
    } },
  }, el("span", { class: `mark ${shape_of(kernel)}`, "aria-hidden": "true" }), kernel)));

  const route = () => {
    const parts = new URLSearchParams(location.hash.slice(1));
    const wanted = parts.get("filter") || "";
    if (wanted !== state.filter) {
      state.filter = wanted;
      if (box.value !== wanted) box.value = wanted;
      apply_filter();
    }
    const index = parts.has("case") ? Number(parts.get("case")) : -1;
    const r = Number.isInteger(index) ? results[index] : undefined;
    const was = state.case_index;
    state.case_index = r ? index : -1;
    case_view = r ? case_page(r) : null;
    document.body.classList.toggle("one-case", !!r);
    fill(main, r ? case_view.node : list);
    document.title = r ? `${r.name} – ${data.title}` : data.title;
    redraw();
    if (r) {
      window.scrollTo(0, 0);
      document.getElementById("case-title").focus({ preventScroll: true });
    } else if (was >= 0) {
      window.scrollTo(0, route.scroll || 0);
    }
  };
  window.addEventListener("hashchange", () => {
    if (state.case_index < 0) route.scroll = route.scroll_now || 0;
    route();
  });
  window.addEventListener("scroll", () => { if (state.case_index < 0) route.scroll_now = window.scrollY; }, { passive: true });
  const typed = after_pause(160, () => {
    const next = box.value.trim();
    if (next === state.filter) return;
    state.filter = next;
    apply_filter();
    history.replaceState(null, "", address(state.case_index));
    redraw();
  });
  box.addEventListener("input", typed);
  narrow.addEventListener("change", () => redraw());
  document.addEventListener("keydown", (event) => {
    const writing = /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName);
    if (event.key === "/" && !writing && state.case_index < 0) {
      event.preventDefault();
      box.focus();
    } else if (event.key === "Escape" && state.case_index >= 0) {
      location.hash = address(-1);
    }
  });

  theme.restore();
  draw_legend();
  fill(document.getElementById("top"),
    el("div", { class: "bar" },
      el("h1", { class: "title" }, data.title), el("span", { class: "spacer" }), theme.switch_button(redraw)),
    el("div", { class: "bar controls" },
      box, count, legend),
    problem,
    el("p", { id: "filter-help", class: "visually-hidden" }, "Words must all match. A word may be text, a regular expression between slashes, or a comparison such as max_k>=8k; a minus sign excludes. The slash key goes here."));
  const problems = problems_section();
  if (problems) list.prepend(problems);
  list.prepend(overview(list));
  route();
}

const kProblemsShown = 20;

/**
 * What a reader should look at before any plot; null if there is nothing. Failures that share a clue stand below the
 * one of least work.
 */
function problems_section() {
  if (!data.problems.length) return null;
  const alike = new Map(data.problems.filter((p) => p.alike).map((p) => [p.kind, []]));
  const first = data.problems.filter((p) => p.alike || !alike.has(p.kind) || (alike.get(p.kind).push(results[p.result]), false));
  const more = first.length - kProblemsShown;
  const head = (r) => [el("span", { class: `badge ${status_class(r.shown)}` }, status_words[r.shown]), " ", el("a", { class: "id", href: case_link(r.index) }, r.name)];
  const others = (list) => el("details", {}, el("summary", {}, `${plural(list.length, "other")} of this kind`),
    el("ul", { class: "problems" }, list.slice(0, 5 * kProblemsShown).map((r) => el("li", {}, ...head(r)))));
  const item = (p) => {
    const r = results[p.result];
    const notes = [r.reason || "", ...clues_of(r), p.alike].filter(Boolean).map((text) => el("p", { class: "note" }, text));
    return el("li", {}, ...head(r), ...notes, p.alike ? others(alike.get(p.kind)) : null);
  };
  return el("section", { class: "panel", id: "problems", "aria-labelledby": "problems-title" },
    el("h2", { id: "problems-title" }, "To look at"),
    el("ul", { class: "problems" }, first.slice(0, kProblemsShown).map(item)),
    more > 0 ? el("p", { class: "note" }, `and ${more.toLocaleString("en-US")} more: the counts above filter the table.`) : null);
}

function overview(list) {
  const by_status = new Map();
  for (const r of results) by_status.set(r.shown, (by_status.get(r.shown) || 0) + 1);
  const devices = [...new Set(data.runs.map(model_of))];
  const dates = data.runs.map((r) => r.date).filter(Boolean).map((d) => d.slice(0, 10)).sort();
  const revisions = [...new Set(data.runs.map((r) => r.revision).filter(Boolean))];
  const span = dates.length ? (dates[0] === dates[dates.length - 1] ? dates[0] : `${dates[0]} – ${dates[dates.length - 1]}`) : "";
  return el("section", { class: "overview", "aria-label": "Overview" },
    el("p", { class: "device" }, devices.join(", ")),
    el("p", { class: "hint" }, [plural(new Set(data.cases.map((c) => c.id)).size, "case"), plural(data.runs.length, "run"), span, revisions.length ? `revision ${revisions.join(", ")}` : ""].filter(Boolean).join(" · ")),
    el("p", { class: "chips" }, Object.keys(status_words).filter((s) => by_status.has(s)).map((s) =>
      el("a", { class: `chip ${status_class(s)}`, href: `#${new URLSearchParams({ filter: `status=${s}` })}` }, `${by_status.get(s).toLocaleString("en-US")} ${status_words[s]}`))),
    el("nav", { "aria-label": "Sections" }, [
      ["comparison", "Against the baseline"], ["by-axis", "Time and rate by axis"], ["versus", "Kernel against kernel"],
      ["roofline", "Roofline"], ["errors", "Errors"], ["cases", "All results"], ["environment", "Environment"],
    ].filter(([id]) => list.querySelector(`#${id}`)).map(([id, name]) => el("button", { type: "button", class: "jump", on: { click: () => {
      const target = document.getElementById(id);
      target.scrollIntoView();
      target.setAttribute("tabindex", "-1");
      target.focus({ preventScroll: true });
    } } }, name))),
    data.runs.some(ceilings_disturbed) ? el("p", { class: "notice", role: "note" }, `* The ceilings of ${data.runs.filter(ceilings_disturbed).map((run) => run.file).join(", ")} were measured on a busy machine: %SOL and bound may be wrong.`) : null,
    results.some(timed_busy) ? el("p", { class: "notice", role: "note" }, "! Other processes took the cores during more than half of the samples: such a time is unreliable.") : null,
    results.some(timed_vague) ? el("p", { class: "notice", role: "note" }, `? ± ${100 * data.limits.vague} % or more: such a time is not usable.`) : null,
    results.some(failed_otherwise) ? el("p", { class: "notice", role: "note" }, "^ This max |z| is of the verified launch and within its limit; another check failed, which the page of the case names.") : null,
    data.samples_every > 1 ? el("p", { class: "note" }, `To keep this file small it holds one of ${data.samples_every} samples of each time; medians and intervals are of all of them.`) : null);
}

make_page();
