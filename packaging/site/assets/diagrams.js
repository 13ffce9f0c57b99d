// mermaid is large: only pages with a diagram load it. A diagram follows the palette, light or dark.
const diagrams = [...document.querySelectorAll(".diagram")].map((place) => ({ place, source: place.textContent }));

function draw() {
  const dark = document.body.dataset.mdColorScheme === "slate";
  mermaid.initialize({ startOnLoad: false, securityLevel: "strict", theme: dark ? "dark" : "default" });
  for (const { place, source } of diagrams) {
    place.removeAttribute("data-processed");
    place.textContent = source;
  }
  mermaid.run({ querySelector: ".diagram" });
}

if (diagrams.length) {
  const script = document.createElement("script");
  script.src = new URL("mermaid.min.js", document.currentScript.src);
  script.onload = () => {
    draw();
    new MutationObserver(draw).observe(document.body, { attributeFilter: ["data-md-color-scheme"] });
  };
  document.head.append(script);
}
