// The machines of the runs, and the ceilings that they measured.

function run_facts(run) {
  const d = run.device || {};
  const c = run.ceilings || {};
  const rates = Object.entries(c.matmul_tflops || {}).map(([dtype, v]) => `${dtype} ${digits(v, 3)}`).join(", ");
  return facts([
    ["file", run.file],
    ["date", run.date],
    ["device", d.model],
    ["driver", d.driver],
    ["CUDA", d.cuda],
    ["multiprocessors", d.multiprocessors ? String(d.multiprocessors) : ""],
    ["highest clock", d.clock_mhz ? `${digits(d.clock_mhz)} MHz` : ""],
    ["memory", d.memory_bytes ? scaled(d.memory_bytes, "B") : ""],
    ["last-level cache", d.cache_bytes ? scaled(d.cache_bytes, "B") : ""],
    ["host", run.cpu ? `${run.cpu.model}, ${plural(run.cpu.threads, "thread")}` : run.host_name],
    ["load when it began", (run.load_avg || []).length ? digits(run.load_avg[0], 2) : ""],
    ["read bandwidth", is_number(c.read_gbs) ? `${digits(c.read_gbs)} GB/s` : ""],
    ["copy bandwidth", is_number(c.copy_gbs) ? `${digits(c.copy_gbs)} GB/s` : ""],
    ["matrix rate, TFLOP/s", rates],
    ["empty launch", is_number(c.floor_us) ? micros(c.floor_us) : ""],
    ["how measured", c.note],
    ["program", run.version ? `attnbench ${run.version}, ${run.revision}, ${run.build_type}` : ""],
    ["plug-ins", Array.isArray(run.plugins) ? run.plugins.map((p) => `${p?.path} (${p?.digest})`).join(", ") : ""],
    ["command", run.command_line ? el("code", {}, run.command_line.join(" ")) : ""],
    ["complete", run.complete === false ? "no: interrupted, more was planned" : ""],
  ]);
}

/** What each kernel ran of the cases asked of it, and the types that it declares. */
function kernel_facts() {
  return facts(data.kernels.map((k) => [k.kernel || "no kernel", [
    `${k.ran.toLocaleString("en-US")} of ${plural(k.asked, "case")} run`,
    k.types.length ? `declares ${k.types.join(" or ")}` : "",
    k.skipped_for ? `skipped, for example: ${k.skipped_for}` : ""].filter(Boolean).join("; ")]));
}

function environment_section() {
  return el("section", { class: "panel", id: "environment", "aria-labelledby": "environment-title" },
    el("h2", { id: "environment-title" }, "Environment"),
    el("details", { id: "kernels", open: true }, el("summary", {}, "Kernels"), kernel_facts()),
    data.runs.map((run, i) => el("details", { open: i === 0 },
      el("summary", {}, `${run.name || run.file}: ${model_of(run)}${run.date ? `, ${run.date.slice(0, 10)}` : ""}`), run_facts(run))));
}
