// The form that asks for the job's token, once for each tab.

import { keepToken } from "./asking.js";
import { coded, h } from "./dom.js";

/** The form; `why` says what was wrong with the last token, `go` is called when there is another. */
export function loginForm(why, go) {
  const field = h("input", { id: "token", type: "password", name: "token", autocomplete: "current-password", required: true, spellcheck: "false", "aria-describedby": "token-where", autofocus: true });
  const send = (event) => {
    event.preventDefault();
    if (!field.value.trim()) return;
    keepToken(field.value.trim());
    go();
  };
  return h("form", { class: "login", submit: send },
    h("h2", {}, "This job asks for its token"),
    why ? h("p", { class: "bad", role: "alert" }, why) : null,
    h("p", { class: "entry" }, h("label", { for: "token" }, "Token"), field, h("button", { type: "submit" }, "Show the job")),
    h("p", { id: "token-where", class: "quiet" }, ...coded("Each life of the job has a token of its own in the file `token` of its folder, unless `[control].token_file` names another. `lowtide status NAME --open` opens this page with it.")));
}
