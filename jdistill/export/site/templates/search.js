// Answers a question in the browser: its vector by the model, and the texts whose vectors are nearest to it.

const [form, question, message, loading, section, list] =
  ["form", "question", "status", "loading", "answer", "results"].map((id) => document.getElementById(id));
const LEAST_COSINE = 0.99; // of a probe text's vector here to that of the same graph where the page was made

function say(text, wrong = false) {
  message.textContent = text;
  message.classList.toggle("wrong", wrong);
}

// digest: of the file, so that no cache gives one of an earlier page; none: no cache is asked.
async function get(path, as, digest) {
  const response = await (digest ? fetch(`${path}?${digest}`) : fetch(path, { cache: "no-store" }));
  if (!response.ok) throw new Error(`the server answers ${response.status} for ${path}`);
  return response[as]();
}

function here(address) {
  return new URL(address, document.baseURI).href;
}

// What answers: rows (the number of texts) and answer(question) -> [{row, score}], best first.
async function load() {
  const site = await get("site.json", "json");
  const parts = ["tokenizer.json", "tokenizer_config.json", "texts.json"].map((path) => get(path, "json", site.digests[path]));
  const binary = ["model.onnx", "vectors.bin"].map((path) => get(path, "arrayBuffer", site.digests[path]));
  const settled = Promise.all([...parts, ...binary]);
  settled.catch(() => {}); // told below, where it is awaited
  const [ort, { Tokenizer }] = await Promise.all(
    ["ort.js", "tokenizers.js"].map((name) => import(here(site.runtime[name]))));
  ort.env.wasm.numThreads = 1; // more need headers that a plain file server does not send
  ort.env.wasm.wasmPaths = { wasm: here(site.runtime["ort.wasm"]) };
  const [tokenizerFile, tokenizerConfig, texts, graph, vectors] = await settled;
  if (texts.length !== site.rows || vectors.byteLength !== site.rows * (4 + site.width)) {
    throw new Error("texts.json, vectors.bin and site.json do not belong together: copy the whole folder again");
  }
  const tokenizer = new Tokenizer(tokenizerFile, tokenizerConfig);
  const session = await ort.InferenceSession.create(new Uint8Array(graph), { executionProviders: ["wasm"] });
  const engine = makeEngine(site, ort, tokenizer, session, vectors);
  await check(site, engine);
  return { texts, ...engine };
}

function makeEngine(site, ort, tokenizer, session, vectors) {
  const scales = new Float32Array(vectors, 0, site.rows);
  const rows = new Int8Array(vectors, 4 * site.rows);
  const room = site.max_length - site.before.length - site.after.length;

  function tokenIds(text) {
    // A browser's small form of a word's last sigma is another letter than the model's tokenizer has.
    const whole = site.prompt + text;
    const { ids } = tokenizer.encode(site.lower ? whole.replaceAll("Σ", "σ") : whole, { add_special_tokens: false });
    return [...site.before, ...ids.slice(0, room), ...site.after];
  }

  async function vectorOf(text) {
    const ids = tokenIds(text);
    const read = ids.length ? ids : [site.pad];
    const values = {
      input_ids: read,
      attention_mask: read.map(() => (ids.length ? 1 : 0)),
      token_type_ids: read.map(() => 0),
    };
    const feeds = Object.fromEntries(session.inputNames.map(
      (name) => [name, new ort.Tensor("int64", BigInt64Array.from(values[name], BigInt), [1, read.length])]));
    const { sentence_embedding: output } = await session.run(feeds, ["sentence_embedding"]);
    return unit(output.data);
  }

  async function answer(text) {
    const vector = await vectorOf(text);
    const scores = new Float32Array(site.rows);
    for (let row = 0, at = 0; row < site.rows; row++) {
      let sum = 0;
      for (let i = 0; i < site.width; i++, at++) sum += rows[at] * vector[i];
      scores[row] = sum * scales[row];
    }
    return best(scores, site.shown);
  }

  return { tokenIds, vectorOf, answer };
}

function unit(vector) {
  const length = Math.hypot(...vector) || 1;
  return Float32Array.from(vector, (x) => x / length);
}

// The `count` highest scores, highest first, and their rows; of equal ones the first row's comes first.
function best(scores, count) {
  const top = [];
  scores.forEach((score, row) => {
    if (top.length === count && !(score > top[count - 1].score)) return;
    let at = top.length;
    while (at && score > top[at - 1].score) at--;
    top.splice(at, 0, { row, score });
    top.length = Math.min(top.length, count);
  });
  return top;
}

// Holds tokens and vectors against those of the place where the page was made, and warms the model up.
async function check(site, engine) {
  for (const { text, ids } of site.probes) {
    if (engine.tokenIds(text).join() !== ids.join()) {
      throw new Error(`the tokenizer of this page reads "${text.slice(0, 40)}" otherwise than the model does`);
    }
  }
  const vector = await engine.vectorOf(site.probes[0].text);
  const expected = unit(site.probe_vector);
  const cosine = vector.reduce((sum, x, i) => sum + x * expected[i], 0);
  if (!(cosine >= LEAST_COSINE)) throw new Error(`the model gives other vectors in this browser (cosine ${cosine.toFixed(3)})`);
}

// Texts are strangers' words: they become text nodes, never HTML.
function show(texts, answers) {
  list.replaceChildren(...answers.map(({ row, score }) => {
    const item = document.createElement("li");
    const [text, figure] = [document.createElement("p"), document.createElement("p")];
    text.textContent = texts[row];
    text.dir = "auto";
    text.lang = ""; // unknown
    figure.textContent = `score ${score.toFixed(3)}`;
    figure.className = "score";
    item.dataset.row = row;
    item.append(text, figure);
    return item;
  }));
  section.hidden = !answers.length;
}

let last = Promise.resolve(); // one question at a time: the model runs one
let asked = 0;

function ask(text) {
  const number = ++asked;
  const blank = !text.trim();
  question.toggleAttribute("aria-invalid", false);
  if (blank) {
    question.setAttribute("aria-invalid", "true");
    section.hidden = true;
    say("The question is empty: type a few words, then press Enter.", true);
    question.focus();
    return;
  }
  if (!loading.hidden) say("Loading the model and the texts. The answer comes as soon as they are here.");
  last = last.then(() => ready).then(async (engine) => {
    if (number !== asked || !engine) return; // a later question has come
    const start = performance.now();
    const answers = await engine.answer(text);
    show(engine.texts, answers);
    const took = performance.measure("answer", { start }).duration;
    const count = answers.length === 1 ? "1 text" : `${answers.length} texts`;
    say(answers.length
      ? `${count} of ${engine.texts.length.toLocaleString("en")}, nearest first, in ${Math.ceil(took)} ms.`
      : "No texts: this page has none to search.");
  }).catch((error) => say(`The question could not be answered: ${error.message}`, true));
}

// The question stands after #, which no browser sends to a server, so that an answer has an address.
function askAddress() {
  const text = new URLSearchParams(location.hash.slice(1)).get("q");
  if (text === null) return;
  question.value = text;
  ask(text);
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const address = `#${new URLSearchParams({ q: question.value })}`;
  if (!question.value.trim() || location.hash === address) ask(question.value);
  else location.hash = address;
});
window.addEventListener("hashchange", askAddress);

loading.hidden = false;
say("Loading the model and the texts. You can type your question already.");
const ready = load().then((engine) => {
  performance.mark("ready");
  if (!asked) say("Ready. Type a question, then press Enter.");
  return engine;
}).catch((error) => {
  say(`The page could not be loaded: ${error.message}. Reload it to try again.`, true);
  return null;
}).finally(() => { loading.hidden = true; });
askAddress();
