// transformers.js in Node: the feature-extraction pipeline on the folder's ONNX graph. node CLIENT FOLDER WORK
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, basename, join } from "node:path";
import { pathToFileURL } from "node:url";

const [folder, work] = process.argv.slice(2);
const require = createRequire(join(process.env.NODE_ENVIRONMENT, "package.json"));
const { pipeline, env } = await import(pathToFileURL(require.resolve("@huggingface/transformers")));
const version = JSON.parse(readFileSync(join(process.env.NODE_ENVIRONMENT, "package-lock.json"))).packages["node_modules/@huggingface/transformers"].version;

env.allowRemoteModels = false;
env.localModelPath = dirname(folder);
const extract = await pipeline("feature-extraction", basename(folder), { dtype: "fp32" });
const texts = JSON.parse(readFileSync(join(work, "texts.json")));

async function encode(asked, batch) {
  const vectors = [];
  for (let start = 0; start < asked.length; start += batch) {
    vectors.push(...(await extract(asked.slice(start, start + batch), { pooling: "mean", normalize: true })).tolist());
  }
  return vectors;
}

await encode(texts.slice(0, 64), 32);
let began = performance.now();
const vectors = await encode(texts, 32);
const together = (performance.now() - began) / 1000;
const alone = texts.slice(0, 200);
began = performance.now();
for (const text of alone) await encode([text], 1);
const one = (performance.now() - began) / 1000;
writeFileSync(join(work, "vectors.json"), JSON.stringify(vectors));
writeFileSync(join(work, "times.json"), JSON.stringify({
  sentences_per_s_batch_32: texts.length / together,
  sentences_per_s_batch_1: alone.length / one,
  // maxRSS would count what the process that started this one had.
  peak_mb: Number(readFileSync("/proc/self/status", "utf8").match(/VmHWM:\s+(\d+)/)[1]) / 1000,
  versions: { "@huggingface/transformers": version },
}));
