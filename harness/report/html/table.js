// All results as a table: sorted by any column, a hundred rows at a time.
const kRowsAtOnce = 100;

const table_columns = [
  { name: "status", value: (r) => Object.keys(status_words).indexOf(r.shown), cell: (r) => el("span", { class: `badge ${status_class(r.shown)}` }, status_words[r.shown]) },
  { name: "case", value: (r) => r.id, cell: id_link, class: "id" },
  { name: "kernel", value: (r) => r.kernel, cell: (r) => (r.kernel === "none" ? kNone : r.kernel) },
  { name: "time", value: (r) => r.us, cell: (r) => micros(r.us) + time_mark(r), class: "number" },
  { name: "± %", value: (r) => spread(r.time), cell: spread_text, class: "number" },
  { name: "rate", value: (r) => (is_number(r.us) ? r.tflops : NaN), cell: (r) => (is_number(r.us) && r.tflops > 0 ? flop_rate(r.tflops) : kNone), class: "number" },
  { name: "GB/s", value: (r) => (is_number(r.us) ? r.gbs : NaN), cell: (r) => (is_number(r.us) ? digits(r.gbs) : kNone), class: "number" },
  { name: "%SOL", value: (r) => (is_number(r.us) ? r.sol : NaN), cell: (r) => (is_number(r.us) && is_number(r.sol) ? digits(100 * r.sol, 3) + (ceilings_disturbed(r.run) ? "*" : "") : kNone), class: "number" },
  { name: "bound", value: (r) => (is_number(r.us) && r.bound) || NaN, cell: (r) => (is_number(r.us) && r.bound ? r.bound + (ceilings_disturbed(r.run) ? "*" : "") : kNone) },
  { name: "max |z|", value: (r) => r.z, cell: z_text, class: "number" },
  { name: "rows", value: (r) => (r.check ? r.check.rows : NaN), cell: (r) => rows_text(r.check), class: "number" },
];

/** Whether a wrong result's z is within its limit, because another check failed. */
function failed_otherwise(r) {
  return r.status === "fail" && r.check.method !== "none" && is_number(r.z) && r.z <= data.limits.max_z;
}

function z_text(r) {
  if (r.check && r.check.method === "none") return kNone;
  if (r.check && r.check.method === "bitwise") return r.status === "fail" ? kNone : "exact";
  return digits(r.z, 3) + (failed_otherwise(r) ? "^" : "");
}

function rows_text(check) {
  if (!check) return kNone;
  const total = check.rows_total.toLocaleString("en-US");
  return check.rows === check.rows_total ? `all ${total}` : `${check.rows.toLocaleString("en-US")} of ${total}`;
}

function status_class(status) {
  return status === "pass" ? "good" : status === "skip" || status === "unchecked" ? "" : status === "invalid_time" || status === "undecided" ? "warn" : "bad";
}

function result_table() {
  const order = { column: -1, down: false };
  let room = kRowsAtOnce;
  const body = el("tbody");
  const count = el("p", { class: "note" });
  const more = el("button", { type: "button", class: "more", on: { click: () => { room += 5 * kRowsAtOnce; render(); } } });
  const heads = table_columns.map((c, i) =>
    el("th", { scope: "col", class: c.class === "number" ? "number" : null },
      el("button", { type: "button", on: { click: () => sort_by(i) } }, c.name)));
  const sort_by = (i) => {
    order.down = order.column === i ? !order.down : table_columns[i].class === "number";
    order.column = i;
    render();
  };
  const sorted = (list) => {
    if (order.column < 0) return list;
    const value = table_columns[order.column].value;
    const missing = (v) => v === undefined || v === null || Number.isNaN(v);
    return [...list].sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      if (missing(x) || missing(y)) return missing(x) - missing(y);  // missing values are always last
      const d = typeof x === "string" ? by_name(x, y) : x - y;
      return order.down ? -d : d;
    });
  };
  const render = () => {
    heads.forEach((h, i) => h.setAttribute("aria-sort", order.column !== i ? "none" : order.down ? "descending" : "ascending"));
    const list = sorted(shown());
    fill(body, list.slice(0, room).map((r) => el("tr", {}, table_columns.map((c) => el("td", { class: c.class || null }, c.cell(r))))));
    count.textContent = `${plural(list.length, "result")} of ${results.length.toLocaleString("en-US")}.`;
    more.hidden = list.length <= room;
    more.textContent = `Show more (${(list.length - room).toLocaleString("en-US")} left)`;
  };
  const node = el("section", { class: "panel", id: "cases", "aria-labelledby": "cases-title" },
    el("div", { class: "panel-head" }, el("h2", { id: "cases-title" }, "All results"), count),
    el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Results" },
      el("table", { id: "results" }, el("thead", {}, el("tr", {}, heads)), body)), more);
  return { node, render: () => { room = kRowsAtOnce; render(); } };
}
