// Questions to the server of the page: Airflow's API server, whose session they go with, or the control API of the job
// itself, which wants its token. That is kept for this tab alone, and goes with no request to anybody else.

const LIMIT_MS = 20_000;
const KEPT = "lowtide-token";

const NAMES = { airflow: "Airflow's API server", job: "The job's control API" };

/** There is no answer: `message` says why, for people. */
export class Unanswered extends Error {
  /** @param {"silent" | "token" | "refused"} kind */
  constructor(kind, message) {
    super(message);
    this.kind = kind;
  }
}

/** Take the token out of the address, which `lowtide status --open` has put there, before anybody sees it. */
export function takeToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!given) return;
  history.replaceState(null, "", location.pathname + location.search);
  keepToken(given);
}

export function keepToken(token) {
  sessionStorage.setItem(KEPT, token);
}

/** What a path below the page answers; `server` is "airflow", "job", or null as long as nobody knows. */
export async function ask(path, server) {
  const token = sessionStorage.getItem(KEPT);
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const named = NAMES[server] ?? "The server of this page";
  let response;
  try {
    response = await fetch(path, { headers, signal: AbortSignal.timeout(LIMIT_MS), credentials: token ? "omit" : "same-origin", cache: "no-store" });
  } catch {
    throw new Unanswered("silent", `${named} does not answer. Trying again.`);
  }
  if (response.ok) return response.json();
  if (response.status === 401 && (response.headers.get("WWW-Authenticate") ?? "").includes('realm="lowtide"')) {
    sessionStorage.removeItem(KEPT);
    throw new Unanswered("token", token ? "The job does not take this token." : "");
  }
  if (response.status === 401) throw new Unanswered("refused", "You are signed out of Airflow. Reload the page to sign in.");
  if (response.status === 403) throw new Unanswered("refused", "Your Airflow role may not see this page. It needs to read plugins.");
  throw new Unanswered("refused", `${named} answered ${response.status}: ${(await response.text()).slice(0, 300)}`);
}
