// Replays of servers: the time of attention per generated token, by kernel.

function token_section() {
  if (!data.tokens || data.tokens.length === 0) return null;
  const heads = ["replay", "kernel", "µs per token", "95 % interval", "steps"];
  const row = (t) => el("tr", {},
    el("td", { class: "id" }, t.replay), el("td", {}, t.kernel),
    el("td", { class: "number" }, is_number(t.us) ? digits(t.us) : kNone),
    el("td", { class: "number" }, is_number(t.us) ? `${digits(t.lo)} … ${digits(t.hi)}` : t.why),
    el("td", { class: "number" }, `${t.timed.toLocaleString("en-US")} of ${t.steps.toLocaleString("en-US")}`));
  return el("section", { class: "panel", id: "tokens", "aria-labelledby": "tokens-title" },
    el("h2", { id: "tokens-title" }, "Time per generated token"),
    el("p", { class: "note" }, "Attention of one layer over all steps of a replayed server, divided by the tokens that it generates. Steps were drawn from strata of equal work; the interval holds the error of that sample."),
    el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Time per generated token" },
      el("table", {}, el("thead", {}, el("tr", {}, heads.map((h, i) => el("th", { scope: "col", class: i > 1 ? "number" : null }, h)))),
        el("tbody", {}, data.tokens.map(row)))));
}
