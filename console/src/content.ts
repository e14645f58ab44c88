// The bytes of a key, a value or a header, and how to show them.

import type { DecodedContent, Message, MessageContent } from "./types";

export type Content = MessageContent | null;

export interface PlacedMessage extends Message {
  partition: number;
}

export type View = "json" | "text" | "hex";

/** What to show of a key or a value: by its schema, if the registry has it, else as stored. */
export function readable(content: Content, decoded: DecodedContent | null): Content {
  return decoded ? { text: decoded.json } : content;
}

export function bytesOf(content: Content): Uint8Array {
  if (!content) return new Uint8Array();
  if (content.text !== undefined) return new TextEncoder().encode(content.text);
  const plain = atob(content.base64 ?? "");
  return Uint8Array.from(plain, (sign) => sign.charCodeAt(0));
}

export function textOf(content: Content): string {
  if (!content) return "";
  return content.text ?? new TextDecoder().decode(bytesOf(content));
}

/** One line, for lists. */
export function summary(content: Content, most = 400): string {
  if (!content) return "null";
  if (content.text === undefined) return hexRow(bytesOf(content).slice(0, 48));
  return content.text.slice(0, most).replace(/\s+/g, " ");
}

export function isJson(content: Content): boolean {
  if (content?.text === undefined) return false;
  try {
    JSON.parse(content.text);
    return true;
  } catch {
    return false;
  }
}

export function shown(content: Content, view: View): string {
  if (!content) return "null";
  if (view === "hex") return hexDump(bytesOf(content));
  const text = textOf(content);
  if (view === "text") return text;
  try {
    return indented(text);
  } catch {
    return text;
  }
}

/** JSON with line breaks. Numbers stay unchanged, because parsing would round large ones. */
export function indented(text: string): string {
  JSON.parse(text); // throws for invalid JSON
  let depth = 0;
  const pad = () => "\n" + "  ".repeat(depth);
  const tokens = text.match(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g) ?? [];
  let result = "";
  tokens.forEach((token, at) => {
    const next = tokens[at + 1];
    if (token === "{" || token === "[") {
      const empty = next === "}" || next === "]";
      depth += 1;
      result += token + (empty ? "" : pad());
    } else if (token === "}" || token === "]") {
      depth -= 1;
      const before = tokens[at - 1];
      result += (before === "{" || before === "[" ? "" : pad()) + token;
    } else if (token === ",") result += "," + pad();
    else if (token === ":") result += ": ";
    else result += token;
  });
  return result;
}

function hexRow(row: Uint8Array): string {
  return Array.from(row, (byte) => byte.toString(16).padStart(2, "0")).join(" ");
}

function hexDump(all: Uint8Array): string {
  const lines: string[] = [];
  for (let at = 0; at < all.length; at += 16) {
    const row = all.slice(at, at + 16);
    const signs = Array.from(row, (byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : "·")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${hexRow(row).padEnd(47)}  ${signs}`);
  }
  return lines.join("\n");
}

export function download(name: string, content: BlobPart, type: string): void {
  const address = URL.createObjectURL(new Blob([content], { type }));
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  URL.revokeObjectURL(address);
}

/** One line of JSON per message: UTF-8 as text, other bytes as base64. */
export function asLines(messages: PlacedMessage[]): string {
  return messages.map((message) => JSON.stringify(message) + "\n").join("");
}
