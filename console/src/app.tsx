// The frame of every screen: navigation, connection state and sign-in.

import { useEffect } from "preact/hooks";
import { get, hasKey, needsKey, outage, signOut } from "./api";
import { Notices } from "./parts/notices";
import { SecretShown } from "./parts/secret";
import { usePoll } from "./poll";
import { rights } from "./rights";
import { to, usePlace } from "./route";
import { Access } from "./screens/access";
import { Group } from "./screens/group";
import { Groups } from "./screens/groups";
import { Lake } from "./screens/lake";
import { Overview } from "./screens/overview";
import { Queue } from "./screens/queue";
import { Queues } from "./screens/queues";
import { Routers } from "./screens/routers";
import { Schemas } from "./screens/schemas";
import { SignIn } from "./screens/signin";
import { Sql } from "./screens/sql";
import { Storage } from "./screens/storage";
import { Subscription, Subscriptions } from "./screens/subscriptions";
import { Topic } from "./screens/topic";
import { Topics } from "./screens/topics";
import { Transactions } from "./screens/transactions";
import { useStore } from "./store";
import { theme, toggleTheme } from "./theme";
import type { KeyRights } from "./types";

const SCREENS = [
  ["overview", "Overview"],
  ["topics", "Topics"],
  ["groups", "Consumer groups"],
  ["subscriptions", "Subscriptions"],
  ["queues", "Queues"],
  ["routers", "Routers"],
  ["transactions", "Transactions"],
  ["sql", "SQL"],
  ["lake", "Lake and pipelines"],
  ["access", "Access"],
  ["schemas", "Schemas"],
  ["storage", "Internals"],
] as const;

const RIGHTS_MS = 15_000;
const OFFLINE_MS = 1_500;

export function App() {
  const { segments } = usePlace();
  const colours = useStore(theme);
  const unanswered = useStore(outage);
  const answers = unanswered === "";
  const keyNeeded = useStore(needsKey);
  const held = useStore(rights);
  const key = usePoll((signal) => get<KeyRights>("/v0/key", signal), answers ? RIGHTS_MS : OFFLINE_MS, [keyNeeded, answers]);
  useEffect(() => {
    if (key.data) rights.set(key.data);
  }, [key.data]);
  useEffect(() => {
    addEventListener("keydown", onShortcut);
    return () => removeEventListener("keydown", onShortcut);
  }, []);
  const screen = segments[0] ?? "overview";
  useEffect(() => {
    // On phones the navigation is one row that scrolls.
    document.querySelector("nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [screen]);
  const leave = () => {
    signOut();
    needsKey.set(true);
  };
  return (
    <div class="frame">
      <a class="skip" href="#main" onClick={skipToMain}>
        Skip to the content
      </a>
      <header class="side">
        <a class="brand" href={to("overview")}>
          <img src="/console/assets/mark.svg" alt="" width="24" height="24" />
          Mainstem
        </a>
        <nav aria-label="Screens">
          {SCREENS.map(([name, label]) => (
            <a key={name} href={to(name)} aria-current={name === screen ? "page" : undefined}>
              {label}
            </a>
          ))}
        </nav>
        <div class="side-foot">
          <a href="/docs">HTTP reference</a>
          <button type="button" class="button quiet" onClick={toggleTheme}>
            {colours === "dark" ? "Light colours" : "Dark colours"}
          </button>
          {held.authentication && hasKey() && (
            <button type="button" class="button quiet" onClick={leave} title={`Scopes of this key: ${held.scopes.join(", ")}`}>
              Sign out
            </button>
          )}
        </div>
      </header>
      <main id="main" tabIndex={-1}>
        {unanswered && (
          <div class="offline" role="alert">
            {unanswered} This page resumes by itself.
          </div>
        )}
        {keyNeeded ? <SignIn /> : <Screen name={screen} rest={segments.slice(1)} />}
      </main>
      <SecretShown />
      <Notices />
    </div>
  );
}

function Screen(props: { name: string; rest: string[] }) {
  const [first, second] = props.rest;
  switch (props.name) {
    case "overview":
      return <Overview />;
    case "topics":
      return first ? <Topic key={first} name={first} tab={second ?? "messages"} /> : <Topics />;
    case "groups":
      return first ? <Group key={first} name={first} /> : <Groups />;
    case "subscriptions":
      return first ? <Subscription key={first} name={first} /> : <Subscriptions />;
    case "queues":
      return first ? <Queue key={first} name={first} /> : <Queues />;
    case "routers":
      return <Routers />;
    case "transactions":
      return <Transactions />;
    case "access":
      return <Access tab={first ?? "keys"} />;
    case "sql":
      return <Sql />;
    case "lake":
      return <Lake />;
    case "schemas":
      return <Schemas subject={first} />;
    case "storage":
      return <Storage />;
    default:
      return (
        <section class="screen">
          <div class="empty">
            <h1>Page not found</h1>
            <p>
              <a href={to("overview")}>Go to the overview</a>
            </p>
          </div>
        </section>
      );
  }
}

/** The URL contains the screen, so a link within the page must not change it. */
function skipToMain(event: Event): void {
  event.preventDefault();
  document.getElementById("main")?.focus();
}

function onShortcut(event: KeyboardEvent): void {
  const target = event.target as HTMLElement;
  if (event.key !== "/" || target.matches("input, textarea, select") || document.querySelector("dialog[open]")) return;
  const search = document.querySelector<HTMLInputElement>("[data-search]");
  if (!search) return;
  event.preventDefault();
  search.focus();
  search.select();
}
