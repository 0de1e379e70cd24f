/**
 * What the user may do with one queue or address. Unknown counts as granted: the broker decides.
 */
import { api, may, session } from "./api.js";
import { useStore } from "./store.js";
import { html, useEffect, useState } from "./ui/html.js";

/** @type {Map<string, Promise<Record<string, boolean> | null>>} */
const known = new Map();
session.subscribe(() => known.clear());

/**
 * @param {string | undefined} address undefined: that of the queue
 * @param {string} [queue]
 * @returns {(permission: string) => boolean} permissions as in broker.xml: send, consume, browse, edit, deleteAddress …
 */
export function usePermissions(address, queue) {
  const { whoami } = useStore(session);
  const secured = Boolean(whoami?.securityEnabled) && !whoami?.permissions.manage;
  const [allowed, setAllowed] = useState(/** @type {Record<string, boolean> | null} */ (null));
  useEffect(() => {
    if (!secured || (address === undefined && queue === undefined)) return undefined;
    let current = true;
    const key = JSON.stringify([address, queue]);
    const found = known.get(key) ?? load(address, queue);
    known.set(key, found);
    found.then((permissions) => current && setAllowed(permissions));
    return () => {
      current = false;
    };
  }, [secured, address, queue]);
  if (!secured) return () => true;
  return (permission) => (allowed ? (allowed[permission] ?? true) : may("edit"));
}

/**
 * @param {string | undefined} address
 * @param {string} [queue]
 * @returns {Promise<Record<string, boolean> | null>}
 */
async function load(address, queue) {
  try {
    const { data } = await api.get("permissions", { address, queue });
    return Object.fromEntries(data.map((/** @type {any} */ entry) => [entry.permission, entry.allowedOverHTTP ?? entry.allowed]));
  } catch {
    return null;
  }
}

/** Says that an action is not offered, and why. @param {{permission: string, on: string}} props */
export const Lacking = ({ permission, on }) => html`<p class="none muted">You lack the permission ${permission} on ${on}.</p>`;
