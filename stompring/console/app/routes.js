/**
 * The pages. One line for each; the first that matches is taken. `:name` is a parameter. To add a page, write
 * `pages/PAGE.js` with a default export (a component with the properties `params` and `query`) and a line here.
 */

/**
 * @typedef {object} Route
 * @property {string} path
 * @property {string} page module in pages/
 * @property {string} title of the window and, without parameters, of the page
 * @property {string} [nav] label in the navigation
 * @property {string} [group] heading above it in the navigation
 * @property {string} [key] the letter after g
 * @property {string} [permission] on activemq.management, without which the page is not in the navigation
 * @property {boolean} [fill] whether the page uses the whole height and scrolls inside
 */

/** @type {Route[]} */
export const ROUTES = [
  { path: "/", page: "overview", title: "Overview", nav: "Overview", key: "o" },
  { path: "/queues", page: "queues", title: "Queues", nav: "Queues", key: "q", permission: "view", fill: true },
  { path: "/queues/:name", page: "queue", title: "Queue" },
  { path: "/addresses", page: "addresses", title: "Addresses", nav: "Addresses", key: "a", permission: "view", fill: true },
  { path: "/addresses/:name", page: "address", title: "Address" },
  { path: "/queues/:name/messages", page: "messages", title: "Messages" },
  { path: "/dead-letters", page: "dead_letters", title: "Dead letters", nav: "Dead letters", group: "Messages", key: "d", permission: "view" },
  { path: "/schedules", page: "schedules", title: "Schedules", nav: "Schedules", group: "Messages", key: "s", permission: "view" },
  { path: "/messages/send", page: "send", title: "Send", nav: "Send", group: "Messages", key: "m" },
  { path: "/live", page: "live", title: "Live", nav: "Live", group: "Messages", key: "l" },
  { path: "/tasks", page: "tasks", title: "Tasks", nav: "Tasks", group: "Messages", key: "t", permission: "view" },
  { path: "/routing", page: "routing", title: "Diverts and bridges", nav: "Diverts, bridges", group: "Messages", key: "b", permission: "view" },
  { path: "/connections", page: "connections", title: "Connections", nav: "Connections", group: "Clients", key: "c", permission: "view", fill: true },
  { path: "/connections/:id", page: "connection", title: "Connection" },
  { path: "/consumers", page: "consumers", title: "Consumers", nav: "Consumers", group: "Clients", key: "u", permission: "view", fill: true },
  { path: "/events", page: "events", title: "Events", nav: "Events", group: "Broker", key: "e", permission: "view" },
  { path: "/admin/users", page: "users", title: "Users and roles", nav: "Users", group: "Broker", permission: "manage" },
  { path: "/admin/permissions", page: "permissions", title: "Permissions", nav: "Permissions", group: "Broker", key: "p" },
  { path: "/admin/settings", page: "settings", title: "Settings and security", nav: "Settings, security", group: "Broker", key: "r", permission: "view" },
  { path: "/admin/plugins", page: "plugins", title: "Plugins", nav: "Plugins", group: "Broker", permission: "view" },
  { path: "/admin/configuration", page: "configuration", title: "Configuration", nav: "Configuration", group: "Broker", permission: "view" },
  { path: "/admin/ha", page: "ha", title: "High availability", nav: "Availability", group: "Broker", permission: "view" },
  { path: "/admin/retention", page: "retention", title: "Retention", nav: "Retention", group: "Broker", permission: "view" },
  { path: "/admin/logging", page: "logging", title: "Logging", nav: "Logging", group: "Broker", permission: "view" },
];

/**
 * @param {string[]} segments
 * @returns {{route: Route, params: Record<string, string>} | null}
 */
export function findRoute(segments) {
  for (const route of ROUTES) {
    const parts = route.path.split("/").filter(Boolean);
    if (parts.length !== segments.length) continue;
    /** @type {Record<string, string>} */
    const params = {};
    const fits = parts.every((part, index) => {
      if (!part.startsWith(":")) return part === segments[index];
      params[part.slice(1)] = segments[index];
      return true;
    });
    if (fits) return { route, params };
  }
  return null;
}
