// A loopback proxy that adds our server's token, for peers that cannot send one.
// usage: node with-token.mjs URL TOKEN   prints its own URL
import http from "node:http";

const [target, token] = [new URL(process.argv[2]), process.argv[3]];
const server = http.createServer((incoming, answer) => {
  const own = `127.0.0.1:${server.address().port}`;
  const headers = { ...incoming.headers, authorization: `Bearer ${token}` };
  // Our own name becomes the server's; any other goes through as it came, so that the server can refuse it.
  const renamed = (it) => it?.replace(own, target.host).replace(own.replace("127.0.0.1", "localhost"), target.host);
  headers.host = renamed(headers.host);
  if (headers.origin) headers.origin = renamed(headers.origin);
  const options = { host: target.hostname, port: target.port, path: incoming.url, method: incoming.method, headers };
  const onward = http.request(options, (response) => {
    answer.writeHead(response.statusCode, response.headers);
    response.pipe(answer);
  });
  onward.on("error", () => answer.destroy());
  answer.on("close", () => onward.destroy());
  incoming.pipe(onward);
});
server.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}${target.pathname}`));
