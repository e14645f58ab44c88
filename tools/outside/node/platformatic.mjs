// @platformatic/kafka: node platformatic.mjs BROKERS [CHECK …]
import assert from 'node:assert/strict'
import zlib from 'node:zlib'
import { Admin, Consumer, MessagesStreamModes, Producer, stringDeserializers, stringSerializers } from '@platformatic/kafka'
import { run, until } from './checks.mjs'

const base = { clientId: 'outside', bootstrapBrokers: process.argv[2].split(',') }
const admin = new Admin(base)

async function topic (name, partitions = 1) {
  await admin.createTopics({ topics: [name], partitions, replicas: 1 })
  return name
}

async function reader (groupId, topics, options = {}) {
  const found = []
  const consumer = new Consumer({ ...base, groupId, deserializers: stringDeserializers, sessionTimeout: 6000, heartbeatInterval: 500, ...options })
  const stream = await consumer.consume({ topics, mode: MessagesStreamModes.EARLIEST, autocommit: 100, maxWaitTime: 200 })
  stream.on('data', message => found.push(message))
  const close = async () => { await stream.close(); await consumer.close() }
  return { found, consumer, stream, close }
}

async function writer (options = {}) {
  return new Producer({ ...base, serializers: stringSerializers, ...options })
}

const values = (name, count) => Array.from({ length: count }, (_, n) => ({ topic: name, key: `k${n}`, value: `v${n}`, headers: { n: String(n) } }))

async function group (protocol) {
  const name = await topic(`plt-${protocol}`, 4)
  const producer = await writer()
  await producer.send({ messages: values(name, 200) })
  const first = await reader(`plt-${protocol}`, [name], { groupProtocol: protocol })
  await until(() => first.found.length >= 200, 'all records are read')
  assert.equal(new Set(first.found.map(one => one.value)).size, 200)
  const second = await reader(`plt-${protocol}`, [name], { groupProtocol: protocol })
  await until(async () => (await admin.describeGroups({ groups: [`plt-${protocol}`] })).get(`plt-${protocol}`)?.members.size === 2 || protocol === 'consumer', 'both are members')
  await producer.send({ messages: values(name, 200) })
  await until(() => first.found.length + second.found.length >= 400, 'both read')
  await first.close()
  await producer.send({ messages: values(name, 200) })
  await until(() => first.found.length + second.found.length >= 600, 'the other reads on')
  await second.close()
  await producer.close()
}

await run({
  async admin_calls () {
    const name = await topic('plt-admin', 2)
    await assert.rejects(topic(name))
    assert.ok((await admin.listTopics()).includes(name))
    await admin.createPartitions({ topics: [{ name, count: 3 }] })
    const metadata = await admin.metadata({ topics: [name] })
    assert.equal(metadata.topics.get(name).partitionsCount, 3)
    await admin.incrementalAlterConfigs({ resources: [{ resourceType: 2, resourceName: name, configs: [{ name: 'retention.ms', configOperation: 0, value: '12345000' }] }] })
    const [described] = await admin.describeConfigs({ resources: [{ resourceType: 2, resourceName: name, configurationKeys: ['retention.ms'] }] })
    assert.equal(described.configs[0].value, '12345000')
    await admin.describeLogDirs({ topics: [{ name, partitions: [0] }] })
    await admin.alterClientQuotas({ entries: [{ entities: [{ entityType: 'client-id', entityName: 'plt' }], ops: [{ key: 'consumer_byte_rate', value: 1e6, remove: false }] }] })
    const quotas = await admin.describeClientQuotas({ components: [{ entityType: 'client-id', matchType: 0, match: 'plt' }] })
    assert.equal(quotas[0].values[0].value, 1e6)
    const offsets = await admin.listOffsets({ topics: [{ name, partitions: [{ partitionIndex: 0, timestamp: -1n }] }] })
    assert.equal(offsets[0].partitions[0].offset, 0n)
    await admin.deleteTopics({ topics: [name] })
    assert.ok(!(await admin.listTopics()).includes(name))
  },
  async records_of_every_codec () {
    const name = await topic('plt-codecs')
    const codecs = ['none', 'gzip', 'snappy', 'lz4', ...('zstdCompressSync' in zlib ? ['zstd'] : [])]
    for (const compression of codecs) {
      const producer = await writer({ compression, idempotent: true, autocreateTopics: false })
      await producer.send({ messages: values(name, 100) })
      await producer.close()
    }
    const all = await reader('plt-codecs', [name])
    await until(() => all.found.length >= 100 * codecs.length, 'all records are read')
    assert.equal(all.found.at(-1).headers.get('n'), '99')
    await all.close()
  },
  members_of_the_classic_protocol: () => group('classic'),
  members_of_the_next_generation: () => group('consumer'),
  async transactions () {
    const name = await topic('plt-transactions')
    const producer = await writer({ transactionalId: 'plt', idempotent: true })
    for (const [value, commits] of [['kept', true], ['lost', false], ['kept too', true]]) {
      const transaction = await producer.beginTransaction()
      await transaction.send({ messages: [{ topic: name, value }] })
      await (commits ? transaction.commit() : transaction.abort())
    }
    await producer.close()
    const all = await reader('plt-transactions', [name])
    await until(() => all.found.length >= 2, 'committed records are read')
    assert.deepEqual(all.found.map(one => one.value), ['kept', 'kept too'])
    await all.close()
    const [place] = await admin.listConsumerGroupOffsets({ groups: [{ groupId: 'plt-transactions', topics: [{ name, partitionIndexes: [0] }] }] })
    assert.ok(place.topics[0].partitions[0].committedOffset >= 4n)
  }
})
