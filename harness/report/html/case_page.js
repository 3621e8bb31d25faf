// The page of one result: how to run it again, its times, its verdict, and where it ran.

function case_page(r) {
  const plots = r.time && r.time.samples_us && r.time.samples_us.length > 1 ? [histogram_plot(r), sequence_plot(r)] : [];
  const also = results.filter((o) => o.id === r.id && o.index !== r.index);
  const node = el("article", { class: "case", "aria-labelledby": "case-title" },
    el("p", {}, el("a", { href: "#", class: "back", on: { click: back_to_list } }, "← All results")),
    el("div", { class: "case-head" },
      el("h2", { id: "case-title", tabindex: "-1" }, r.id),
      el("p", { class: "chips" },
        el("span", { class: `badge ${status_class(r.shown)}` }, status_words[r.shown]),
        el("span", { class: "chip" }, r.kernel === "none" ? "no kernel" : r.kernel),
        r.device ? el("span", { class: "chip" }, r.device) : null,
        el("span", { class: "chip" }, model_of(r.run)))),
    r.reason ? el("p", { class: "notice" }, r.reason) : null,
    clues_of(r).length ? el("ul", { class: "clues" }, clues_of(r).map((clue) => el("li", {}, clue))) : null,
    r.repro ? el("div", { class: "repro" }, el("code", { id: "repro" }, r.repro), copy_button(r.repro, "Copy the command that reproduces this")) : null,
    r.time ? time_panel(r) : null,
    plots.length ? el("div", { class: "pair" }, plots.map((p) => p.figure)) : null,
    el("div", { class: "pair" }, r.check ? check_panel(r) : null, params_panel(r)),
    also.length ? also_panel(also) : null,
    el("section", { class: "panel" }, el("h2", {}, "Environment"), run_facts(r.run)));
  return { node, render: () => plots.forEach((p) => p.render()) };
}

function time_panel(r) {
  const t = r.time;
  return el("section", { class: "panel" }, el("h2", {}, "Time"),
    r.status !== "pass" ? el("p", { class: "notice" }, "This time does not count: a time stands only beside a correct result that the hardware allows.") : null,
    facts([
      ["median", micros(t.median_us)],
      ["95 % interval", `${micros(t.lo_us)} – ${micros(t.hi_us)}${timed_vague(r) ? ": the time is not usable" : ""}`],
      ["samples", t.samples.toLocaleString("en-US")],
      ["least, p50, p90, p99", is_number(t.p99_us) ? [t.min_us, t.median_us, t.p90_us, t.p99_us].map(micros).join(", ") : ""],
      ["rate", is_number(r.tflops) && r.flop > 0 ? flop_rate(r.tflops) : ""],
      ["traffic", is_number(r.gbs) ? `${digits(r.gbs, 4)} GB/s` : ""],
      ["%SOL", is_number(r.sol) ? percent(r.sol, 3) : ""],
      ["bound", r.bound],
      ["least possible time", is_number(r.floor_us) ? micros(r.floor_us) : ""],
      ["FLOP needed", is_number(r.flop) ? scaled(r.flop, "FLOP") : ""],
      ["FLOP executed", is_number(r.executed_flop) ? `${scaled(r.executed_flop, "FLOP")}, ${digits(r.executed_flop / r.flop, 3)} x the needed: whole tiles` : ""],
      ["bytes needed", is_number(r.bytes) ? scaled(r.bytes, "B") : ""],
      ...counter_facts(r.counters || {}),
      ["intensity", is_number(r.intensity) ? `${digits(r.intensity, 3)} FLOP/B` : ""],
      ["cache before a launch", t.cache],
      ["graph replay", t.graph ? "yes" : ""],
      ["host-bound samples", t.host_bound ? `${t.host_bound}` : ""],
      ["disturbed samples", t.disturbed ? `${t.disturbed}${timed_busy(r) ? ": other processes took the cores, so the time is unreliable" : ""}` : ""],
      ["near the floor", t.near_floor ? "yes: the launch itself is much of the time" : ""],
      ["clocks", r.clocks ? Object.entries(r.clocks).map(([k, v]) => `${k} ${v}`).join(", ") : ""],
    ]));
}

/** What the hardware counted, next to what the model says is needed. */
function counter_facts(c) {
  const moved = [[c.dram_read_bytes, "read"], [c.dram_write_bytes, "written"]].filter(([bytes]) => is_number(bytes));
  const ratio = is_number(c.dram_over_model) ? `, ${digits(c.dram_over_model, 3)} x the needed` : "";
  return [
    ["bytes that DRAM moved", moved.length ? moved.map(([bytes, how]) => `${scaled(bytes, "B")} ${how}`).join(", ") + ratio : ""],
    ["tensor pipes active", is_number(c.tensor_active_percent) ? `${digits(c.tensor_active_percent, 3)} %` : ""],
    ["L2 hits", is_number(c.l2_hit_percent) ? `${digits(c.l2_hit_percent, 3)} %` : ""],
    ["no counters", c.reason || ""],
  ];
}

function check_panel(r) {
  const c = r.check;
  const against = (v, limit, significant = 3) => (is_number(v) ? `${digits(v, significant)}, limit ${limit}` : "");
  const exact = c.method === "bitwise";
  const w = c.worst;
  return el("section", { class: "panel" }, el("h2", {}, "Verification"), facts([
    ["method", exact ? "bit for bit" : `${c.method}, against float64`],
    ["failed by", (c.failed_by || []).join(", ")],
    ["rows compared", `${c.rows.toLocaleString("en-US")} of ${c.rows_total.toLocaleString("en-US")}`],
    ["declared", Object.entries(c.numerics || {}).map(([key, value]) => `${key} ${value}`).join(", ")],
    ...power_facts(c.power || {}),
    ["accepts, too", (c.accepts || []).join(", ")],
    ["max |z|", exact ? "" : against(c.max_z, data.limits.max_z)],
    ["max |z| of LSE", exact ? "" : against(c.lse_max_z, data.limits.lse_max_z)],
    ["worst row's z², over its limit", exact ? "" : against(c.max_row_z2, 1)],
    ["bias, standard errors", exact ? "" : against(c.bias_se, data.limits.bias_se)],
    ["root mean square z", exact ? "" : digits(c.rms_z, 3)],
    ["largest absolute error", exact ? "" : digits(c.max_abs, 3)],
    ["largest relative error", exact ? "" : digits(c.max_rel, 3)],
    ["in units in the last place", exact ? "" : digits(c.max_ulp, 3)],
    ["worst element", !exact && w && w.seq >= 0 ? `sequence ${w.seq}, position ${w.pos}, head ${w.head}, channel ${w.channel}: ${digits(w.got, 4)}, expected ${digits(w.expected, 4)}` : ""],
    ["reference took", is_number(c.reference_s) ? `${digits(c.reference_s, 2)} s` : ""],
  ]));
}

/** The smallest mistakes that the verdict would have seen. */
function power_facts(p) {
  const seen = (all, by_o) => (is_number(all) ? percent(all, 2) + (is_number(by_o) && by_o > all ? `, by O alone ${percent(by_o, 2)}` : "") : "");
  return [
    ["sees a softmax_scale off by", seen(p.softmax_scale, p.softmax_scale_by_o)],
    ["sees O off by", seen(p.o_scale)],
    ["sees a dropped key of weight", seen(p.dropped_key, p.dropped_key_by_o)],
  ];
}

/** What the case sets, then, folded, the parameters with their defaults. */
function params_panel(r) {
  const rows = (names) => facts(names.map((name) => [name, r.params[name] === null ? "none" : String(r.params[name])]));
  const own = Object.keys(r.params).filter((name) => !follows(r.params, name)), defaults = Object.keys(data.params_default).filter((name) => !own.includes(name));
  return el("section", { class: "panel", id: "params" }, el("h2", {}, "Parameters"),
    facts([["sweep", r.item.sweep], ["seed", r.item.seed === undefined ? "" : String(r.item.seed)]]), rows(own),
    own.length ? el("details", {}, el("summary", {}, `${plural(defaults.length, "parameter")} with their defaults`), rows(defaults)) : null);
}

function also_panel(list) {
  return el("section", { class: "panel" }, el("h2", {}, "The same case elsewhere"),
    el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "The same case elsewhere" },
      el("table", {}, el("thead", {}, el("tr", {}, ["kernel", "run", "status", "time", "rate", "max |z|"].map((h) => el("th", { scope: "col" }, h)))),
        el("tbody", {}, list.map((o) => el("tr", {},
          el("td", {}, el("a", { href: case_link(o.index) }, o.kernel)), el("td", {}, o.run.name || o.run.file),
          el("td", {}, el("span", { class: `badge ${status_class(o.shown)}` }, status_words[o.shown])),
          el("td", { class: "number" }, micros(o.us)),
          el("td", { class: "number" }, is_number(o.us) && o.tflops > 0 ? flop_rate(o.tflops) : kNone),
          el("td", { class: "number" }, z_text(o))))))));
}
