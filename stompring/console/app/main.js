/**
 * The shell: header, navigation, the page of the address, dialogs.
 */
import { logOut, reach, retry, session, start, may, userName, ApiError } from "./api.js";
import { useBroker, useBrokerPoll } from "./broker.js";
import { Finder } from "./finder.js";
import { LoginPage } from "./login.js";
import { useLocation } from "./router.js";
import { findRoute, ROUTES } from "./routes.js";
import { openShortcuts, useShortcuts } from "./shortcuts.js";
import { remember, remembered, useStore } from "./store.js";
import { ErrorBox, Loading, Empty } from "./ui/badge.js";
import { Overlays } from "./ui/dialog.js";
import { clock, duration } from "./ui/format.js";
import { html, render, useEffect, useErrorBoundary, useLayoutEffect, useState } from "./ui/html.js";

/** @typedef {import("./routes.js").Route} Route */

function App() {
  const { state } = useStore(session);
  if (state === "login") return html`<${LoginPage} /><${Overlays} />`;
  if (state === "starting") return html`<main class="boot"><${AwayBanner} /><${Loading} what="the console" /></main>`;
  return html`<${Shell} />`;
}

function Shell() {
  useBrokerPoll();
  useShortcuts();
  const location = useLocation();
  const found = findRoute(location.segments);
  const [open, setOpen] = useState(false);
  useEffect(() => setOpen(false), [location.path]);
  const skip = (/** @type {Event} */ event) => {
    event.preventDefault();
    document.getElementById("content")?.focus();
  };
  return html`
    <a class="skip" href="#content" onClick=${skip}>Skip to the content</a>
    <header class="top">
      <button type="button" class="icon-button menu-button" aria-label="Navigation" aria-expanded=${open ? "true" : "false"} aria-controls="nav"
        onClick=${() => setOpen(!open)}><svg viewBox="0 0 16 16" width="16" height="16" aria-hidden="true"><path d="M2 4h12M2 8h12M2 12h12" /></svg></button>
      <${Brand} />
      <${Finder} />
      <div class="top-end"><${User} /><${ThemeSwitch} />
        <button type="button" class="icon-button wide-only" aria-label="Keyboard shortcuts" title="Keyboard shortcuts (?)" onClick=${openShortcuts}>?</button></div>
    </header>
    <${AwayBanner} />
    <div class="frame">
      <${Navigation} open=${open} current=${found?.route} segments=${location.segments} />
      ${open && html`<div class="scrim" onClick=${() => setOpen(false)}></div>`}
      <main id="content" tabindex="-1" class=${found?.route.fill ? "fill" : ""}>
        ${found
          ? html`<${PageOf} key=${location.path} route=${found.route} params=${found.params} query=${location.query} />`
          : html`<h1>Not found</h1><${Empty} title="This page does not exist."><a href="#/">Overview</a><//>`}
      </main>
    </div>
    <${Overlays} />`;
}

function Brand() {
  const { broker, health, problems } = useBroker();
  const away = useStore(reach).away;
  const errors = problems.filter((problem) => problem.severity === "error").length;
  const [tone, text] = away
    ? ["warning", "no answer"]
    : !health
      ? ["neutral", "…"]
      : health.draining || broker?.draining
        ? ["warning", "draining"]
        : !health.ready || errors
          ? ["error", health.ready ? `${errors} ${errors === 1 ? "problem" : "problems"}` : "not ready"]
          : problems.length
            ? ["warning", `${problems.length} ${problems.length === 1 ? "warning" : "warnings"}`]
            : ["ok", "healthy"];
  return html`<a class="brand" href="#/" title="Overview">
    <svg class="logo" viewBox="0 0 32 32" width="24" height="24" aria-hidden="true"><circle cx="16" cy="16" r="11" /><path d="M16 5a11 11 0 1 1-10.46 7.6" /></svg>
    <span class="brand-name">${broker?.name ?? "stompring"}</span>
    <span class=${`health health-${tone}`}><span class="dot" aria-hidden="true"></span><span class="health-text">${text}</span></span>
  </a>`;
}

/** @param {{open: boolean, current: Route | undefined, segments: string[]}} props */
function Navigation({ open, current, segments }) {
  const { broker } = useBroker();
  const routes = ROUTES.filter((route) => route.nav && (!route.permission || may(route.permission)));
  const groups = [...new Set(routes.map((route) => route.group ?? ""))];
  const under = (/** @type {Route} */ route) =>
    route === current || (!current?.nav && segments.length > 0 && route.path === `/${segments[0]}`);
  return html`<nav id="nav" aria-label="Pages" class=${open ? "nav open" : "nav"}>
    <div class="nav-pages">${groups.map((group) => html`
      ${group && html`<p class="nav-group">${group}</p>`}
      <ul>${routes
        .filter((route) => (route.group ?? "") === group)
        .map((route) => html`<li><a href=${`#${route.path}`} aria-current=${under(route) ? "page" : undefined}><span>${route.nav}</span>
          ${route.key && html`<kbd aria-hidden="true">g ${route.key}</kbd>`}</a></li>`)}</ul>`)}</div>
    <p class="nav-foot muted">${broker ? `stompring ${broker.version}` : ""}</p>
  </nav>`;
}

/** @type {Map<string, any>} */
const modules = new Map();

/** @param {{route: Route, params: Record<string, string>, query: Record<string, string>}} props */
function PageOf({ route, params, query }) {
  const [module, setModule] = useState(() => modules.get(route.page));
  const [fault, setFault] = useState(/** @type {ApiError | null} */ (null));
  const [crash, reset] = useErrorBoundary((error) => console.error(error));
  const load = () => {
    setFault(null);
    import(`./pages/${route.page}.js`).then(
      (loaded) => {
        modules.set(route.page, loaded);
        setModule(loaded);
      },
      (error) => setFault(new ApiError(-1, "Error", String(error))),
    );
  };
  useEffect(() => {
    if (!module) load();
  }, []);
  const name = Object.values(params)[0];
  const brokerName = useBroker().broker?.name ?? "stompring";
  useEffect(() => {
    document.title = `${name ? `${name} · ` : ""}${route.title} · ${brokerName}`;
  }, [route, name, brokerName]);
  useLayoutEffect(() => {
    // The new page is announced, and the keyboard goes on from its top. At once: later, the focus would be taken from
    // a field that the user has chosen meanwhile.
    if (module && arrived) document.getElementById("content")?.focus({ preventScroll: true });
    if (module) {
      arrived = true;
      window.scrollTo(0, 0);
    }
  }, [module]);
  if (crash) {
    return html`<h1>${route.title}</h1><${ErrorBox} error=${new ApiError(-1, "Error of the page", String(crash))} what="The page failed" again=${reset} />`;
  }
  if (fault) return html`<h1>${route.title}</h1><${ErrorBox} error=${fault} what="The page could not be loaded" again=${load} />`;
  if (!module) return html`<${Loading} />`;
  return html`<${module.default} params=${params} query=${query} />`;
}

let arrived = false;

function AwayBanner() {
  const { away, since, nextTry, cause } = useStore(reach);
  const [, tick] = useState(0);
  useEffect(() => {
    if (!away) return undefined;
    const timer = setInterval(() => tick((before) => before + 1), 1000);
    return () => clearInterval(timer);
  }, [away]);
  if (!away) return null;
  const left = Math.max(0, Math.ceil((nextTry - Date.now()) / 1000));
  return html`<div class="banner banner-warning" role="alert">
    <span><strong>${cause}</strong> No answer since ${clock(since)}. What you see may be out of date. <span aria-live="off">Next attempt ${left > 0 ? `in ${duration(left * 1000)}` : "now"}.</span></span>
    <button type="button" class="button small" onClick=${() => retry()}>Try now</button>
  </div>`;
}

function User() {
  const { whoami } = useStore(session);
  const user = userName();
  if (!user) return whoami && !whoami.securityEnabled ? html`<span class="user muted wide-only" title="security-enabled is false: every client has all permissions">no login</span>` : null;
  return html`<span class="user"><span class="user-name" title=${whoami ? `Roles: ${whoami.roles.join(", ") || "none"}` : undefined}>${user}</span>
    <button type="button" class="button small quiet" onClick=${logOut}>Log out</button></span>`;
}

const THEMES = ["system", "light", "dark"];
const THEME_ICONS = {
  system: "M2 3h12v8H2zM6 14h4M8 11v3",
  light: "M8 5a3 3 0 1 0 0 6 3 3 0 0 0 0-6zM8 1v1.5M8 13.5V15M1 8h1.5M13.5 8H15M3 3l1 1M12 12l1 1M13 3l-1 1M4 12l-1 1",
  dark: "M13.5 9.5A6 6 0 1 1 6.5 2.5a5 5 0 0 0 7 7z",
};

function ThemeSwitch() {
  const [theme, setTheme] = useState(() => remembered("theme", "system"));
  const next = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
  const choose = () => {
    remember("theme", next);
    if (next === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = next;
    window.dispatchEvent(new Event("themechange"));
    setTheme(next);
  };
  return html`<button type="button" class="icon-button" aria-label=${`Theme: ${theme}; change to ${next}`} title=${`Theme: ${theme}`} onClick=${choose}>
    <svg viewBox="0 0 16 16" width="16" height="16" aria-hidden="true"><path d=${THEME_ICONS[/** @type {keyof THEME_ICONS} */ (theme)]} /></svg></button>`;
}

const root = document.getElementById("app");
if (root) {
  root.textContent = "";
  render(html`<${App} />`, root);
  void start();
}
