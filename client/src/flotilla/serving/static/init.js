window.addEventListener("load", () => {
  window.ui = SwaggerUIBundle({
    url: "openapi.json",
    dom_id: "#swagger-ui",
    deepLinking: true,
    validatorUrl: null, // no request to anybody but this server
    presets: [SwaggerUIBundle.presets.apis],
    layout: "BaseLayout",
  });
});
