// The filter box: words that must all match. "paged", "/d(64|128)/", "head_dim=128", "max_k>=8k", "-skip".
const figure_keys = {
  us: (r) => r.us, time: (r) => r.us, tflops: (r) => r.tflops, gbs: (r) => r.gbs, z: (r) => r.z,
  sol: (r) => (is_number(r.sol) ? 100 * r.sol : NaN), intensity: (r) => r.intensity,
  kernel: (r) => r.kernel, status: (r) => r.shown, id: (r) => r.id, device: (r) => r.device, bound: (r) => r.bound,
  sweep: (r) => r.item.sweep, phase: (r) => r.item.phase, seed: (r) => r.item.seed, run: (r) => r.run.name,
};

function number_in(text) {
  const match = /^(-?[0-9.]+)([km]?)$/i.exec(text);
  if (!match) return NaN;
  return Number(match[1]) * { "": 1, k: 1024, m: 1048576 }[match[2].toLowerCase()];
}

function value_of(r, key) {
  return Object.hasOwn(figure_keys, key) ? figure_keys[key](r) : r.params[key];
}

function comparison_term(key, operator, wanted) {
  const number = number_in(wanted);
  return (r) => {
    const value = value_of(r, key);
    if (value === undefined || value === null) return false;
    const both = is_number(number) && is_number(value);
    const same = both ? value === number : String(value).toLowerCase() === wanted.toLowerCase();
    switch (operator) {
      case "=": return same;
      case "!=": return !same;
      case "<": return both && value < number;
      case "<=": return both && value <= number;
      case ">": return both && value > number;
      default: return both && value >= number;
    }
  };
}

/** Converts one word to a predicate. Throws SyntaxError for a broken regular expression. */
function term(word) {
  if (word.length > 1 && word.startsWith("-")) {
    const inner = term(word.slice(1));
    return (r) => !inner(r);
  }
  if (word.length > 2 && word.startsWith("/") && word.endsWith("/")) {
    const pattern = new RegExp(word.slice(1, -1), "i");
    return (r) => pattern.test(search_text(r));
  }
  const match = /^([a-z_]+)(!=|<=|>=|=|<|>)(.+)$/i.exec(word);
  if (match) {
    const key = match[1].toLowerCase();
    if (Object.hasOwn(figure_keys, key) || key in data.params_default || results.some((r) => Object.hasOwn(r.params, key))) {
      return comparison_term(key, match[2], match[3]);
    }
  }
  const plain = word.toLowerCase();
  return (r) => search_text(r).includes(plain);
}

/** Returns {matches, error}. A broken word hides nothing, and `error` says what is wrong with it. */
function parse_filter(text) {
  const terms = [];
  let error = "";
  // A regular expression may hold spaces: it ends at a slash before a space or at the end.
  for (const word of text.match(/-?\/.+?\/(?=\s|$)|\S+/g) || []) {
    try {
      terms.push(term(word));
    } catch (e) {
      error = e.message;
    }
  }
  return { matches: (r) => terms.every((t) => t(r)), error };
}
