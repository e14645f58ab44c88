// A graph with topics as boxes, in columns by distance from the sources, and routers as arrows.

import { ScrollFrame } from "../parts/scroll_frame";
import { short } from "../format";
import { go } from "../route";
import type { RouterListing } from "../types";

const BOX = { width: 190, height: 34 };
const GAP = { x: 130, y: 18 };

interface Box {
  x: number;
  y: number;
}

export function RouterGraph({ routers }: { routers: RouterListing[] }) {
  const columns = layers(routers);
  const boxes = new Map<string, Box>();
  const tallest = Math.max(...columns.map((column) => column.length));
  const height = tallest * (BOX.height + GAP.y) + GAP.y;
  columns.forEach((column, at) => {
    const taken = column.length * (BOX.height + GAP.y) - GAP.y;
    column.forEach((topic, row) => {
      boxes.set(topic, {
        x: 12 + at * (BOX.width + GAP.x),
        y: (height - taken) / 2 + row * (BOX.height + GAP.y),
      });
    });
  });
  const width = columns.length * (BOX.width + GAP.x) - GAP.x + 24;
  return (
    <ScrollFrame class="graph" label="Graph of routers">
      <svg viewBox={`0 0 ${width} ${height}`} width={width} height={height} role="img" aria-label="Routers between topics">
        <defs>
          <marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse">
            <path d="M0 0L8 4L0 8z" class="graph-tip" />
          </marker>
        </defs>
        {routers.map((router) => (
          <Arrow key={router.router} router={router} from={boxes.get(router.source)} to={boxes.get(router.dest)} />
        ))}
        {[...boxes].map(([topic, box]) => (
          <g
            key={topic}
            class="graph-box"
            transform={`translate(${box.x} ${box.y})`}
            tabIndex={0}
            role="link"
            aria-label={`Topic ${topic}`}
            onClick={() => go("topics", topic)}
            onKeyDown={(event) => event.key === "Enter" && go("topics", topic)}
          >
            <title>{topic}</title>
            <rect width={BOX.width} height={BOX.height} rx="6" />
            <foreignObject width={BOX.width} height={BOX.height}>
              <div class="graph-name">{topic}</div>
            </foreignObject>
          </g>
        ))}
      </svg>
    </ScrollFrame>
  );
}

function Arrow({ router, from, to }: { router: RouterListing; from: Box | undefined; to: Box | undefined }) {
  if (!from || !to) return null;
  const start = { x: from.x + BOX.width, y: from.y + BOX.height / 2 };
  const end = { x: to.x, y: to.y + BOX.height / 2 };
  const bend = end.x > start.x ? (end.x - start.x) / 2 : GAP.x;
  const line = `M${start.x} ${start.y}C${start.x + bend} ${start.y} ${end.x - bend} ${end.y} ${end.x - 2} ${end.y}`;
  return (
    <g class="graph-arrow">
      <title>{`${router.router}: ${router.forwarded_total} copied`}</title>
      <path d={line} marker-end="url(#tip)" />
      <text x={(start.x + end.x) / 2} y={(start.y + end.y) / 2 - 5}>
        {short(router.forwarded_total)}
      </text>
    </g>
  );
}

/** Topics by distance from the sources. A cycle is cut where the traversal first reaches it. */
function layers(routers: RouterListing[]): string[][] {
  const sources = new Map<string, string[]>();
  for (const { source, dest } of routers) {
    if (!sources.has(source)) sources.set(source, []);
    sources.set(dest, [...(sources.get(dest) ?? []), source]);
  }
  const depth = new Map<string, number>();
  const depthOf = (topic: string, path: Set<string>): number => {
    const known = depth.get(topic);
    if (known !== undefined) return known;
    if (path.has(topic)) return 0;
    const before = (sources.get(topic) ?? []).map((one) => depthOf(one, new Set([...path, topic])) + 1);
    const found = Math.max(0, ...before);
    depth.set(topic, found);
    return found;
  };
  const columns: string[][] = [];
  for (const topic of [...sources.keys()].sort()) {
    const at = depthOf(topic, new Set());
    (columns[at] ??= []).push(topic);
  }
  return Array.from(columns, (column) => column ?? []);
}
