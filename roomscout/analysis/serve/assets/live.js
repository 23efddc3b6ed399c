"use strict";
/* Keeps a served page up to date: asks what has changed since its version, and replaces only that. */
(() => {
  const PAUSE_MS = 2000;
  const status = document.getElementById("live");
  const latest = new Map();
  let version = document.body.dataset.version;

  function say(state, words) {
    if (status.textContent === words) return;
    status.className = state;
    status.textContent = words;
  }

  function replaceBlocks(blocks) {
    for (const [name, content] of Object.entries(blocks)) {
      if (latest.get(name) === content) continue;
      latest.set(name, content);
      document.querySelector(`[data-block="${name}"]`).innerHTML = content; // from the template, which escapes all text
    }
  }

  async function poll() {
    const reply = await fetch(`state.json?since=${encodeURIComponent(version)}`).catch(() => null);
    if (reply === null) say("lost", "The server has ended: this page shows the run as it was then.");
    else if (!reply.ok) say("lost", await reply.text());
    else await apply(await reply.json());
    setTimeout(poll, PAUSE_MS);
  }

  async function apply(news) {
    if (news.blocks) replaceBlocks(news.blocks);
    if (news.answers) await roomscout.update(news.answers);
    say(news.state, news.words);
    version = news.version;
  }

  poll();
})();
