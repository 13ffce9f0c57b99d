// mermaid is large: only pages with a diagram load it.
if (document.querySelector(".diagram")) {
  const script = document.createElement("script");
  script.src = new URL("mermaid.min.js", document.currentScript.src);
  script.onload = () => {
    mermaid.initialize({ startOnLoad: false, securityLevel: "strict" });
    mermaid.run({ querySelector: ".diagram" });
  };
  document.head.append(script);
}
