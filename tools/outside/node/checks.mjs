// Runs checks by name and writes one line of JSON for each: {"name": …} or {"name": …, "failed": …}.

const PATIENCE_MS = 60_000

export async function run (checks) {
  const chosen = process.argv.slice(3)
  for (const [name, check] of Object.entries(checks)) {
    if (chosen.length > 0 && !chosen.includes(name)) continue
    let line = { name }
    try {
      await Promise.race([check(), late(name)])
    } catch (error) {
      line = { name, failed: `${error.stack ?? error} ${JSON.stringify(error)}`.slice(0, 2500) }
    }
    console.log(JSON.stringify(line))
  }
  process.exit(0)
}

async function late (name) {
  await pause(PATIENCE_MS)
  throw new Error(`${name} takes too long`)
}

export function pause (ms) {
  return new Promise(resolve => setTimeout(resolve, ms))
}

export async function until (true_, what) {
  const deadline = Date.now() + PATIENCE_MS
  while (!(await true_())) {
    if (Date.now() > deadline) throw new Error(`in vain: ${what}`)
    await pause(100)
  }
}
