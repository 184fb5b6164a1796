// A BullMQ worker that does nothing: `worker.mjs fill <jobs>` fills the queue, `worker.mjs work <jobs>` empties it and says
// `first` and `done` on its standard output. It ends with its standard input. REDIS_PORT and BULLMQ_DIR say where what is.
import { createRequire } from 'node:module'

const require = createRequire(`${process.env.BULLMQ_DIR}/package.json`)
const { Queue, Worker } = require('bullmq')
const connection = { host: '127.0.0.1', port: Number(process.env.REDIS_PORT), maxRetriesPerRequest: null }
const [role, count] = [process.argv[2], Number(process.argv[3])]

if (role === 'fill') {
  const queue = new Queue('bench', { connection })
  for (let from = 0; from < count; from += 1000) {
    const jobs = []
    for (let number = from; number < Math.min(count, from + 1000); number++) {
      // Kept jobs would only make it slower.
      const opts = { jobId: `job-${number}`, removeOnComplete: true, removeOnFail: true }
      jobs.push({ name: 'send', data: { chat_id: `chat ${number % 20}`, text: 'Hello there' }, opts })
    }
    await queue.addBulk(jobs)
  }
  await queue.close()
} else {
  let done = 0
  let begun = false
  const worker = new Worker('bench', async () => {
    if (!begun) {
      begun = true
      process.stdout.write('first\n')
    }
  }, { connection, concurrency: 50, autorun: false })
  worker.on('completed', () => {
    done += 1
    if (done === count) process.stdout.write('done\n')
  })
  worker.run()
  process.stdin.resume()
  process.stdin.on('end', async () => {
    await worker.close()
    process.exit(0)
  })
}
