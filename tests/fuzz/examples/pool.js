// A block pool in JavaScript, for `kvproof fuzz exec:"node tests/fuzz/examples/pool.js"`.
// One group, full keys only: what it does not have, it does not list.
"use strict";

const OPERATIONS = ["get_new_blocks", "touch", "free_blocks", "get_cached_block",
  "cache_full_blocks", "evict_blocks", "reset_prefix_cache", "get_num_free_blocks"];

class Pool {
  constructor(count) {
    this.count = count;
    this.free = Array.from({ length: count - 1 }, (_, i) => i + 1);
    this.refs = new Array(count).fill(0);
    this.keys = new Array(count).fill(null); // "hash@group"
    this.index = new Map(); // "hash@group" -> [block, ...]
  }
  drop(block) {
    const key = this.keys[block];
    if (key === null) return;
    const rest = this.index.get(key).filter((other) => other !== block);
    if (rest.length) this.index.set(key, rest); else this.index.delete(key);
    this.keys[block] = null;
  }
  get_new_blocks({ num_blocks }) {
    if (num_blocks < 0) throw Error("a number of blocks is 0 or more");
    if (num_blocks > this.free.length) throw Error("not enough free blocks");
    const blocks = this.free.splice(0, num_blocks);
    for (const block of blocks) { this.drop(block); this.refs[block] = 1; }
    return blocks;
  }
  touch({ blocks }) {
    for (const block of blocks) {
      if (block === 0) continue;
      if (this.refs[block]++ === 0) this.free.splice(this.free.indexOf(block), 1);
    }
    return null;
  }
  free_blocks({ blocks }) {
    const real = blocks.filter((block) => block !== 0);
    for (const block of real) {
      if (real.filter((other) => other === block).length > this.refs[block]) {
        throw Error(`block ${block} is freed more often than it is held`);
      }
    }
    const freed = real.filter((block) => --this.refs[block] === 0);
    this.free.unshift(...freed.filter((block) => this.keys[block] === null));
    this.free.push(...freed.filter((block) => this.keys[block] !== null));
    return null;
  }
  get_cached_block({ block_hash, groups }) {
    const found = groups.map((group) => this.index.get(`${block_hash}@${group}`));
    return found.every(Boolean) ? found.map((blocks) => blocks[0]) : null;
  }
  cache_full_blocks({ request, blocks, num_cached_blocks, num_full_blocks, block_size, group,
    block_mask }) {
    const units = block_size / this.hash_block_size;
    for (let i = num_cached_blocks; i < num_full_blocks; i++) {
      if (blocks[i] === 0 || (block_mask && !block_mask[i - num_cached_blocks])) continue;
      const key = `${request.block_hashes[(i + 1) * units - 1]}@${group}`;
      this.keys[blocks[i]] = key;
      this.index.set(key, [...(this.index.get(key) ?? []), blocks[i]]);
    }
    return null;
  }
  evict_blocks({ blocks }) { blocks.forEach((block) => this.drop(block)); return null; }
  reset_prefix_cache() {
    if (this.free.length !== this.count - 1) return false;
    this.keys.fill(null);
    this.index.clear();
    return true;
  }
  get_num_free_blocks() { return this.free.length; }
  observe() {
    return { free: this.free, ref_cnt: this.refs, num_free_blocks: this.free.length };
  }
}

let pool = null;
require("readline").createInterface({ input: process.stdin }).on("line", (line) => {
  const { op, ...args } = JSON.parse(line);
  let answer;
  try {
    if (op === "start") {
      pool = new Pool(args.num_gpu_blocks);
      pool.hash_block_size = args.hash_block_size;
      answer = { ok: OPERATIONS };
    } else {
      answer = { ok: pool[op](args) ?? null };
    }
  } catch (error) {
    answer = { error: error.message };
  }
  process.stdout.write(JSON.stringify(answer) + "\n");
});
