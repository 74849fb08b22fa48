// The search runs in a worker, which browsers refuse to pages that were opened as files. There, a
// hidden frame takes the worker's place: the same script, with messages as plain calls.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      this.inside = frame.contentWindow;
      this.inside.postMessage = (data) =>
        setTimeout(() => this.dispatchEvent(new MessageEvent("message", { data })));
      const script = this.inside.document.createElement("script");
      this.ready = new Promise((done) => (script.onload = done));
      script.src = url;
      this.inside.document.body.appendChild(script);
    }

    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}
