// The switch in the header leads to this page in the other language, if the page links to it below its heading.
const other = document.querySelector("article h1 + p > a:only-child");
for (const link of document.querySelectorAll("a[hreflang]")) {
  if (other && link.textContent.trim() === other.textContent) link.href = other.href;
}
// The theme calls each page English; browsers choose the shapes of Han characters by the language.
if (location.pathname.includes("/zh/")) document.documentElement.lang = "zh-CN";
