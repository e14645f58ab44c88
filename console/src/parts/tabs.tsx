// The tabs of a screen, each with its own URL. Arrow keys move between them.

import { useEffect, useRef } from "preact/hooks";

export function Tabs(props: { label: string; tabs: readonly (readonly [string, string])[]; current: string; hrefOf: (tab: string) => string }) {
  const onKeyDown = (event: KeyboardEvent) => {
    const link = event.target as HTMLElement;
    const next =
      event.key === "ArrowRight" ? link.nextElementSibling : event.key === "ArrowLeft" ? link.previousElementSibling : null;
    if (next instanceof HTMLElement) next.focus();
  };
  const bar = useRef<HTMLElement>(null);
  useEffect(() => {
    // On phones the tabs are one row that scrolls.
    bar.current?.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [props.current]);
  return (
    <nav ref={bar} class="tabs" aria-label={props.label} onKeyDown={onKeyDown}>
      {props.tabs.map(([name, label]) => (
        <a key={name} href={props.hrefOf(name)} aria-current={name === props.current ? "page" : undefined}>
          {label}
        </a>
      ))}
    </nav>
  );
}
