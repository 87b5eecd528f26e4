// The key: typed once, kept for this tab, and never in an address or a cookie.

// Behind a proxy, other daemons may have pages at other paths of the same host.
const NAME = `rollcall.key ${location.pathname}`;

/** Return the key of this tab, or null. */
export function key() {
  return sessionStorage.getItem(NAME);
}

/** Keep a key for this tab. */
export function login(text) {
  sessionStorage.setItem(NAME, text);
}

/** Forget the key. */
export function logout() {
  sessionStorage.removeItem(NAME);
}
