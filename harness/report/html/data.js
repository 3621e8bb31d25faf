// The data block, with each result joined to its case and run.
const data = JSON.parse(document.getElementById("data").textContent);

const results = data.results.map((r, index) => {
  const item = data.cases[r.case];
  const params = item.params ? { ...data.params_common, ...item.params } : {};
  const time = r.status === "pass" && r.time ? r.time : null;
  return {
    ...r,
    index,
    item,
    params,
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
  };
});

const kernels = [...new Set(results.map((r) => r.kernel))];

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
