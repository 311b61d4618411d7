window.addEventListener("load", () => {
  window.ui = SwaggerUIBundle({
    url: "openapi.json",
    dom_id: "#swagger-ui",
    deepLinking: true,
    validatorUrl: null, // no requests to other hosts
    presets: [SwaggerUIBundle.presets.apis],
    layout: "BaseLayout",
  });
});
