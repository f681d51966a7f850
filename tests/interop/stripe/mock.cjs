// stripe-stateful-mock on a free port of this machine. Its own command listens on all addresses.
const { createExpressApp } = require("stripe-stateful-mock");

const server = createExpressApp().listen(0, "127.0.0.1", () => {
  console.log(JSON.stringify({ port: server.address().port }));
});
