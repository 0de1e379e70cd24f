/**
 * The login form. User and password, or a token, stay in the memory of this page.
 */
import { ApiError, logIn, session } from "./api.js";
import { useStore } from "./store.js";
import { FormError, useAction } from "./ui/dialog.js";
import { TextField } from "./ui/form.js";
import { html, useEffect, useState } from "./ui/html.js";

export function LoginPage() {
  const { message } = useStore(session);
  const [user, setUser] = useState("");
  const [password, setPassword] = useState("");
  const [byToken, setByToken] = useState(false);
  const { busy, error, start } = useAction(async () => {
    try {
      await logIn(byToken ? "" : user, password);
    } catch (fault) {
      setPassword("");
      throw byToken ? fault : explained(fault);
    }
  });
  useEffect(() => {
    document.title = "Log in · stompring";
    /** @type {HTMLElement | null} */ (document.querySelector(".login input"))?.focus();
  }, []);
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    void start();
  };
  return html`<main class="login-page">
    <form class="login card" onSubmit=${submit} aria-labelledby="login-title">
      <svg class="logo" viewBox="0 0 32 32" width="40" height="40" aria-hidden="true"><circle cx="16" cy="16" r="11" /><path d="M16 5a11 11 0 1 1-10.46 7.6" /></svg>
      <h1 id="login-title">Log in to the broker</h1>
      <p class="muted">${message || "With a user of the broker whose role may see it: permission view on activemq.management."}</p>
      ${!byToken && html`<${TextField} label="User" name="user" value=${user} onInput=${setUser} autocomplete="username" required />`}
      <${TextField}
        key=${byToken}
        label=${byToken ? "Token" : "Password"}
        name=${byToken ? "token" : "password"}
        type="password"
        value=${password}
        onInput=${setPassword}
        autocomplete=${byToken ? "off" : "current-password"}
        hint=${byToken ? "A JWT of the identity provider that broker.xml names" : undefined}
        required
      />
      ${error && html`<${FormError} error=${error} />`}
      <button type="submit" class="button primary" disabled=${busy || !(byToken ? password : user)}>${busy ? "Checking …" : "Log in"}</button>
      <button type="button" class="button" onClick=${() => { setByToken(!byToken); setPassword(""); }}>${byToken ? "Log in with a password" : "Log in with a token"}</button>
      <p class="hint">${byToken ? "The token" : "The password"} stays in the memory of this page: there is no cookie, and a reload asks again.</p>
    </form>
  </main>`;
}

/** @param {unknown} fault */
function explained(fault) {
  if (!(fault instanceof ApiError)) return fault;
  if (fault.status === 401) return new ApiError(401, fault.title, "User or password is wrong.");
  
  return fault;
}
