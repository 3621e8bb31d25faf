// Elements made without markup: the content of a result becomes text, never HTML.

/**
 * el("a", {class: "x", href: "#", on: {click}}, "text", child). Attributes that are false or null are
 * omitted.
 */
function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "on") {
      for (const [event, handler] of Object.entries(value)) node.addEventListener(event, handler);
    } else if (value !== null && value !== undefined && value !== false) {
      node.setAttribute(name, value === true ? "" : value);
    }
  }
  for (const child of children.flat()) {
    if (child !== null && child !== undefined && child !== false) node.append(child);
  }
  return node;
}

function fill(node, ...children) {
  node.replaceChildren(...children.flat().filter((c) => c !== null && c !== undefined && c !== false));
}

/** Rows of name and value; a value is text or a node. */
function facts(rows) {
  return el("dl", { class: "facts" },
    rows.filter(([, value]) => value !== undefined && value !== null && value !== "")
      .map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}

function select(label, options, chosen, on_change) {
  const list = el("select", { on: { change: () => on_change(list.value) } },
    options.map(([value, text]) => el("option", { value, selected: value === chosen }, text)));
  return el("label", { class: "choice" }, label, " ", list);
}

/** Announces a text to screen readers. */
function announce(text) {
  document.getElementById("live").textContent = text;
}

/**
 * A button that copies. If a local file may not use the clipboard, it uses a hidden field and the old
 * command.
 */
function copy_button(text, label) {
  const button = el("button", { type: "button", class: "copy", "aria-label": label }, "Copy");
  const done = (ok) => {
    button.textContent = ok ? "Copied" : "Select and copy";
    announce(ok ? "Copied" : "Not copied");
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  };
  const old_way = () => {
    const field = el("textarea", { class: "visually-hidden", readonly: true });
    field.value = text;
    document.body.append(field);
    field.select();
    const ok = document.execCommand("copy");
    field.remove();
    button.focus();
    done(ok);
  };
  button.addEventListener("click", () => {
    if (navigator.clipboard && window.isSecureContext) {
      navigator.clipboard.writeText(text).then(() => done(true), old_way);
    } else {
      old_way();
    }
  });
  return button;
}
