// A frame whose content may be wider than the window. While it is, the keyboard can scroll it.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

export function ScrollFrame(props: { class: string; label: string; children: ComponentChildren }) {
  const frame = useRef<HTMLDivElement>(null);
  const [scrolls, setScrolls] = useState(false);
  useEffect(() => {
    const element = frame.current;
    if (!element) return;
    const check = () => setScrolls(element.scrollWidth > element.clientWidth + 1);
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
