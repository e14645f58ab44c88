// A frame whose content may be wider than the window. While it is, the keyboard can scroll it.

import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

export function ScrollFrame(props: { class: string; label: string; children: ComponentChildren }) {
  const frame = useRef<HTMLDivElement>(null);
  const [scrolls, setScrolls] = useState(false);
  const check = () => {
    const element = frame.current;
    if (element) setScrolls(element.scrollWidth > element.clientWidth + 1);
  };
  useLayoutEffect(check); // before new content is drawn; windows change their size below
  useEffect(() => {
    const element = frame.current;
    if (!element) return;
    const sizes = new ResizeObserver(check);
    sizes.observe(element);
    if (element.firstElementChild) sizes.observe(element.firstElementChild);
    return () => sizes.disconnect();
  }, []);
  return (
    <div
      ref={frame}
      class={props.class}
      tabIndex={scrolls ? 0 : undefined}
      role={scrolls ? "region" : undefined}
      aria-label={scrolls ? props.label : undefined}
    >
      {props.children}
    </div>
  );
}
