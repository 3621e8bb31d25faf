// The data block, with each result joined to its case and run.
const data_block = document.getElementById("data");
const data = JSON.parse(data_block.textContent);
data_block.textContent = "";  // of 30,000 results it is 30 MB

Object.setPrototypeOf(data.params_default, null);
for (const item of data.cases) {
  if (item.params) Object.setPrototypeOf(item.params, data.params_default);  // its own are those that are no defaults
}

const results = data.results.map((r, index) => {
  const item = data.cases[r.case];
  const time = r.status === "pass" && r.time ? r.time : null;
  return Object.assign(r, {
    index,
    item,
    params: item.params || {},
    id: item.id,
    name: r.kernel ? `${item.id}/${r.kernel}` : item.id,
    device: r.device || (data.runs[r.run].device || {}).name || "",
    shown: r.status === "pass" && !r.check ? "unchecked" : r.status,  // the status that people see
    repro: item.repro.length === 2 ? `${item.repro[0]}${r.kernel}${item.repro[1]}` : item.repro[0],
    kernel: r.kernel || "none",
    run: data.runs[r.run],
    us: time ? time.median_us : NaN,  // only for a result that counts; r.time has other measurements
    intensity: r.flop > 0 && r.bytes > 0 ? r.flop / r.bytes : NaN,
    z: r.check && is_number(r.check.max_z) ? r.check.max_z : NaN,
  });
});

const kernels = [...new Set(results.map((r) => r.kernel))];

/** By op: the parts that all its ids have, if some id is long and there is another one. */
const alike_parts = new Map();
for (const id of new Set(data.cases.map((c) => c.id))) {
  const parts = id.split("/"), op = alike_parts.get(parts[0]) || { ids: 0, longest: 0, parts };
  alike_parts.set(parts[0], { ids: op.ids + 1, longest: Math.max(op.longest, id.length), parts: op.parts.filter((p) => parts.includes(p)) });
}

/** An id without the parts in its middle that all ids of its op have, if some of these are longer than 48 characters. */
function short_id(id) {
  const parts = id.split("/"), op = alike_parts.get(parts[0]);
  if (!op || op.ids === 1 || op.longest <= 48) return id;
  const kept = parts.map((p, i) => (i > 0 && i < parts.length - 1 && op.parts.includes(p) ? "…" : p));
  return kept.filter((p, i) => p !== "…" || kept[i - 1] !== "…").join("/");
}

/** The short id, with places where a line may end. */
function id_text(id) {
  return el("span", { title: id }, short_id(id).split(/(?<=\/)/).flatMap((part, i) => (i ? [el("wbr"), part] : [part])));
}

function id_link(r) {
  return el("a", { href: case_link(r.index) }, id_text(r.id));
}

/** The text in which a plain word of the filter is searched. */
function search_text(r) {
  if (!r.text) {
    const params = Object.entries(r.params).map(([key, value]) => `${key}=${value}`);
    r.text = [r.name, r.shown, r.item.sweep, r.run.name, r.device, r.reason, ...params].join(" ").toLowerCase();
  }
  return r.text;
}

/** Clues about the cause of a wrong output. */
function clues_of(r) {
  return (r.check && r.check.clues) || [];
}

function model_of(run) {
  return (run.device && run.device.model) || "unknown device";
}

/** The words of the console; only results that nobody checked have one of their own. */
const status_words = {
  pass: "pass", unchecked: "not checked", fail: "fail", undecided: "undecided", skip: "skip", error: "error", timeout: "timeout",
  invalid_time: "invalid_time",
};

/** Unit of rates on axes, as in the console's table: GFLOP/s where all results are of a CPU. */
const rate_unit = results.length && results.every((r) => r.device === "cpu")
  ? { name: "GFLOP/s", of: (tflops) => 1000 * tflops } : { name: "TFLOP/s", of: (tflops) => tflops };
