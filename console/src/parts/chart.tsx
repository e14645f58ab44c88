// A live chart of the last few minutes.

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { useStore } from "../store";
import { theme } from "../theme";

export interface Line {
  label: string;
  colour: string; // the name of a custom property
  values: (number | null)[];
}

const HEIGHT = 168;
const EMPTY_S = 60;

const STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600];
const WHOLE_STEPS = Array.from({ length: 16 }, (_, power) => [1, 2, 5].map((digit) => digit * 10 ** power)).flat();

export function Chart(props: {
  title: string;
  times: number[];
  lines: Line[];
  show: (value: number) => string;
  whole?: boolean; // all values are
}) {
  const frame = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const colours = useStore(theme);
  const latest = useRef(props);
  latest.current = props;

  useEffect(() => {
    const element = frame.current;
    if (!element) return;
    const style = getComputedStyle(document.documentElement);
    const colour = (name: string) => style.getPropertyValue(name).trim();
    const axis: uPlot.Axis = {
      stroke: colour("--muted"),
      grid: { stroke: colour("--line"), width: 1 },
      ticks: { show: false },
      font: "11px system-ui, sans-serif",
    };
    const made = new uPlot(
      {
        width: element.clientWidth || 400,
        height: HEIGHT,
        padding: [8, 26, 0, 0],
        legend: { show: false },
        cursor: { y: false, drag: { setScale: false } },
        scales: { y: { range: (_, __, most) => [0, most > 0 ? most * 1.15 : 1] } },
        axes: [
          { ...axis, size: 26, space: 70, incrs: STEPS_S, values: (_, splits) => splits.map((at) => new Date(at * 1000).toLocaleTimeString("en-GB")) },
          {
            ...axis,
            size: 64,
            space: 36,
            ...(latest.current.whole ? { incrs: WHOLE_STEPS } : {}),
            values: (_, splits) => splits.map((value) => latest.current.show(value)),
          },
        ],
        series: [
          {},
          ...latest.current.lines.map((line, at) => ({
            label: line.label,
            stroke: colour(line.colour),
            width: 1.75,
            fill: at === 0 ? colour(line.colour) + "1f" : undefined,
            points: { show: false },
          })),
        ],
      },
      data(latest.current),
      element,
    );
    plot.current = made;
    const sizes = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height: HEIGHT }));
    sizes.observe(element);
    return () => {
      sizes.disconnect();
      made.destroy();
    };
  }, [colours, props.lines.length]);

  useEffect(() => plot.current?.setData(data(props)), [props.times, props.lines]);

  return (
    <figure class="chart">
      <figcaption>
        <span>{props.title}</span>
        <span class="chart-legend">
          {props.lines.map((line) => {
            const now = line.values.at(-1);
            return (
              <span key={line.label}>
                <i style={{ background: `var(${line.colour})` }} />
                {line.label} <b>{now === null || now === undefined ? "–" : props.show(now)}</b>
              </span>
            );
          })}
        </span>
      </figcaption>
      <div ref={frame} class="chart-frame" />
    </figure>
  );
}

function data(props: { times: number[]; lines: Line[] }): uPlot.AlignedData {
  if (props.times.length < 2) {
    // An empty time range, so that the axes appear before the first line.
    const now = Date.now() / 1000;
    return [[now - EMPTY_S, now], ...props.lines.map(() => [null, null])] as uPlot.AlignedData;
  }
  return [props.times, ...props.lines.map((line) => line.values)] as uPlot.AlignedData;
}
