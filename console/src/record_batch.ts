// One record as a RecordBatch v2, the format in which Kafka's clients write: any bytes as key, value and headers.

export interface NewRecord {
  key: Uint8Array | null;
  value: Uint8Array | null;
  headers: { name: string; value: Uint8Array | null }[];
}

const HEADER_BYTES = 61;
const CRC_FROM = 21; // the checksum covers what follows it
const NO_PRODUCER = -1n;

export function recordBatch(record: NewRecord, timestampMs: number): Uint8Array {
  const body: number[] = [0]; // attributes
  putVarint(body, 0); // timestamp, from that of the batch
  putVarint(body, 0); // offset, likewise
  putSpan(body, record.key);
  putSpan(body, record.value);
  putVarint(body, record.headers.length);
  for (const header of record.headers) {
    putSpan(body, new TextEncoder().encode(header.name));
    putSpan(body, header.value);
  }
  const length: number[] = [];
  putVarint(length, body.length);
  const batch = new Uint8Array(HEADER_BYTES + length.length + body.length);
  batch.set(length, HEADER_BYTES);
  batch.set(body, HEADER_BYTES + length.length);
  const view = new DataView(batch.buffer);
  view.setInt32(8, batch.length - 12);
  view.setInt8(16, 2); // version
  view.setBigInt64(27, BigInt(timestampMs)); // first
  view.setBigInt64(35, BigInt(timestampMs)); // last
  view.setBigInt64(43, NO_PRODUCER);
  view.setInt16(51, -1); // epoch of the producer
  view.setInt32(53, -1); // sequence
  view.setInt32(57, 1); // records
  view.setUint32(17, crc32c(batch.subarray(CRC_FROM)));
  return batch;
}

function putVarint(out: number[], value: number): void {
  let left = value < 0 ? -value * 2 - 1 : value * 2;
  while (left > 127) {
    out.push((left % 128) | 128);
    left = Math.floor(left / 128);
  }
  out.push(left);
}

function putSpan(out: number[], content: Uint8Array | null): void {
  putVarint(out, content === null ? -1 : content.length);
  for (const octet of content ?? []) out.push(octet);
}

const TABLE = Uint32Array.from({ length: 256 }, (_, octet) => {
  let rest = octet;
  for (let bit = 0; bit < 8; bit++) rest = rest & 1 ? (rest >>> 1) ^ 0x82f63b78 : rest >>> 1;
  return rest >>> 0;
});

function crc32c(data: Uint8Array): number {
  let crc = 0xffffffff;
  for (const octet of data) crc = (crc >>> 8) ^ TABLE[(crc ^ octet) & 0xff]!;
  return (crc ^ 0xffffffff) >>> 0;
}
