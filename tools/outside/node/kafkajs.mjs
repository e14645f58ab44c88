// kafkajs: node kafkajs.mjs BROKERS [CHECK …]
import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import { run, until } from './checks.mjs'

const { AclOperationTypes, AclPermissionTypes, AclResourceTypes, CompressionTypes, ConfigResourceTypes, Kafka,
  logLevel, ResourcePatternTypes } = createRequire(import.meta.url)('kafkajs')
const kafka = new Kafka({ brokers: process.argv[2].split(','), logLevel: logLevel.NOTHING })
const admin = kafka.admin()
await admin.connect()

async function topic (name, partitions = 1) {
  await admin.createTopics({ topics: [{ topic: name, numPartitions: partitions }] })
  return name
}

async function reader (groupId, topics, options = {}) {
  const found = []
  const consumer = kafka.consumer({ groupId, sessionTimeout: 6000, heartbeatInterval: 500, rebalanceTimeout: 6000, maxWaitTimeInMs: 300, ...options })
  await consumer.connect()
  await consumer.subscribe({ topics, fromBeginning: true })
  await consumer.run({ eachMessage: async ({ partition, message }) => { found.push({ partition, ...message, value: String(message.value) }) } })
  return { found, consumer }
}

await run({
  async admin_topics () {
    const name = await topic('js-admin', 2)
    assert.ok(!(await admin.createTopics({ topics: [{ topic: name }] })))
    assert.ok((await admin.listTopics()).includes(name))
    await admin.createPartitions({ topicPartitions: [{ topic: name, count: 3 }] })
    const { topics: [found] } = await admin.fetchTopicMetadata({ topics: [name] })
    assert.equal(found.partitions.length, 3)
    const config = [{ type: ConfigResourceTypes.TOPIC, name, configEntries: [{ name: 'retention.ms', value: '12345000' }] }]
    await admin.alterConfigs({ validateOnly: false, resources: config })
    const { resources: [shown] } = await admin.describeConfigs({ resources: [{ type: ConfigResourceTypes.TOPIC, name }], includeSynonyms: false })
    assert.equal(shown.configEntries.find(one => one.configName === 'retention.ms').configValue, '12345000')
    const cluster = await admin.describeCluster()
    assert.ok(cluster.brokers.length >= 1 && cluster.clusterId)
    await admin.deleteTopics({ topics: [name] })
    assert.ok(!(await admin.listTopics()).includes(name))
  },
  async records_with_keys_headers_and_gzip () {
    const name = await topic('js-records', 3)
    const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 })
    await producer.connect()
    for (let n = 0; n < 10; n++) {
      const messages = Array.from({ length: 100 }, (_, i) => ({
        key: `k${i % 7}`, value: `v${n}-${i}`, headers: { number: String(i), many: ['a', 'b'] }, timestamp: String(1_700_000_000_000 + i)
      }))
      await producer.send({ topic: name, messages, compression: n % 2 ? CompressionTypes.GZIP : CompressionTypes.None, acks: -1 })
    }
    await producer.disconnect()
    const { found, consumer } = await reader('js-records', [name])
    await until(() => found.length >= 1000, 'all records are read')
    assert.equal(new Set(found.map(one => one.value)).size, 1000)
    const one = found.find(one => one.value === 'v3-5')
    assert.equal(String(one.headers.number), '5')
    assert.deepEqual(one.headers.many.map(String), ['a', 'b'])
    assert.equal(one.timestamp, '1700000000005')
    await consumer.disconnect()
    const offsets = await admin.fetchTopicOffsets(name)
    assert.equal(offsets.reduce((sum, one) => sum + Number(one.offset), 0), 1000)
    const [committed] = await admin.fetchOffsets({ groupId: 'js-records', topics: [name] })
    assert.equal(committed.partitions.reduce((sum, one) => sum + Number(one.offset), 0), 1000)
    const byTime = await admin.fetchTopicOffsetsByTimestamp(name, 1_700_000_000_000)
    assert.ok(byTime.every(one => one.offset === '0'))
  },
  async members_share_partitions () {
    const name = await topic('js-members', 4)
    const producer = kafka.producer()
    await producer.connect()
    const send = async (from) => {
      for (let n = from; n < from + 100; n++) await producer.send({ topic: name, messages: [{ value: String(n), partition: n % 4 }] })
    }
    const first = await reader('js-members', [name])
    const second = await reader('js-members', [name])
    await until(async () => {
      const { groups: [group] } = await admin.describeGroups(['js-members'])
      return group.state === 'Stable' && group.members.length === 2
    }, 'both are members')
    await send(0)
    await until(() => first.found.length + second.found.length >= 100, 'both read')
    assert.ok(first.found.length > 0 && second.found.length > 0)
    await first.consumer.disconnect()
    await send(100)
    await until(() => new Set([...first.found, ...second.found].map(one => one.value)).size === 200, 'the other reads on')
    await second.consumer.disconnect()
    await producer.disconnect()
    assert.ok((await admin.listGroups()).groups.some(one => one.groupId === 'js-members'))
    await admin.deleteGroups(['js-members'])
    assert.ok(!(await admin.listGroups()).groups.some(one => one.groupId === 'js-members'))
  },
  async transactions_with_offsets () {
    const [source, target] = [await topic('js-source'), await topic('js-target')]
    const producer = kafka.producer({ transactionalId: 'js-transactions', idempotent: true, maxInFlightRequests: 1 })
    await producer.connect()
    for (const [value, commits] of [['kept', true], ['lost', false], ['kept too', true]]) {
      const transaction = await producer.transaction()
      await transaction.send({ topic: target, messages: [{ value }] })
      await transaction.sendOffsets({ consumerGroupId: 'js-offsets', topics: [{ topic: source, partitions: [{ partition: 0, offset: commits ? '7' : '99' }] }] })
      await (commits ? transaction.commit() : transaction.abort())
    }
    await producer.disconnect()
    const { found, consumer } = await reader('js-target', [target], { readUncommitted: false })
    await until(() => found.length >= 2, 'committed records are read')
    assert.deepEqual(found.map(one => one.value), ['kept', 'kept too'])
    await consumer.disconnect()
    const [committed] = await admin.fetchOffsets({ groupId: 'js-offsets', topics: [source] })
    assert.equal(committed.partitions[0].offset, '7')
  },
  async offsets_are_set_reset_and_records_deleted () {
    const name = await topic('js-offsets')
    const producer = kafka.producer()
    await producer.connect()
    await producer.send({ topic: name, messages: Array.from({ length: 20 }, (_, n) => ({ value: String(n) })) })
    await producer.disconnect()
    await admin.setOffsets({ groupId: 'js-reset', topic: name, partitions: [{ partition: 0, offset: '15' }] })
    const { found, consumer } = await reader('js-reset', [name])
    await until(() => found.length >= 5, 'the end is read')
    assert.equal(found[0].value, '15')
    consumer.seek({ topic: name, partition: 0, offset: '3' })
    await until(() => found.some(one => one.value === '3'), 'it seeks')
    consumer.pause([{ topic: name }])
    consumer.resume([{ topic: name }])
    await consumer.disconnect()
    await admin.resetOffsets({ groupId: 'js-reset', topic: name, earliest: true })
    const again = await reader('js-reset', [name])
    await until(() => again.found.length >= 20, 'it begins again')
    await again.consumer.disconnect()
    await admin.deleteTopicRecords({ topic: name, partitions: [{ partition: 0, offset: '10' }] })
    const [place] = await admin.fetchTopicOffsets(name)
    assert.equal(place.low, '10')
  },
  async access_rules () {
    const rule = { resourceType: AclResourceTypes.TOPIC, resourceName: 'js-rule', resourcePatternType: ResourcePatternTypes.LITERAL, principal: 'User:js', host: '*', operation: AclOperationTypes.READ, permissionType: AclPermissionTypes.ALLOW }
    await admin.createAcls({ acl: [rule] })
    const { resources } = await admin.describeAcls({ ...rule, resourcePatternType: ResourcePatternTypes.ANY })
    assert.equal(resources[0].resourceName, 'js-rule')
    const { filterResponses } = await admin.deleteAcls({ filters: [rule] })
    assert.equal(filterResponses[0].matchingAcls.length, 1)
  }
})
