<?php
// Slim with the messages of Nyholm: behind FastCGI, and in a server of Swoole's.
require 'Slim/autoload.php';
require 'Nyholm/Psr7/autoload.php';

use Nyholm\Psr7\Response;
use Nyholm\Psr7\ServerRequest;

$app = new Slim\App(['settings' => ['displayErrorDetails' => true]]);
$app->add(fn ($request, $response, $next) => $next($request, $response)->withHeader('X-Framework', 'slim'));
$app->get('/hello/{name}', function ($request, $response, array $args) {
    $response->getBody()->write("hello {$args['name']} " . ($request->getQueryParams()['q'] ?? ''));
    return $response;
});
$app->post('/form', function ($request, $response) {
    $response->getBody()->write(json_encode([$request->getParsedBody(), $request->getCookieParams()]));
    return $response->withHeader('Content-Type', 'application/json')->withStatus(201);
});
$app->get('/fail', function (): void {
    throw new RuntimeException('it fails');
});

/** The answer to a request of the server. */
function answer(Slim\App $app, string $method, string $uri, array $headers, string $body, array $post, array $cookies): Response
{
    $request = (new ServerRequest($method, $uri, $headers, $body))->withCookieParams($cookies);
    parse_str($request->getUri()->getQuery(), $query);
    return $app->process($request->withQueryParams($query)->withParsedBody($post), new Response());
}

if (PHP_SAPI === 'cgi-fcgi') {
    $uri = 'http://' . $_SERVER['HTTP_HOST'] . $_SERVER['REQUEST_URI'];
    $answer = answer($app, $_SERVER['REQUEST_METHOD'], $uri, [], '', $_POST, $_COOKIE);
    http_response_code($answer->getStatusCode());
    foreach ($answer->getHeaders() as $name => $values) {
        header("$name: " . implode(', ', $values));
    }
    echo $answer->getBody();
    return;
}
$server = new Swoole\Http\Server('127.0.0.1', 0);
$server->on('request', static function ($request, $response) use ($app): void {
    $query = isset($request->server['query_string']) ? '?' . $request->server['query_string'] : '';
    $answer = answer($app, $request->getMethod(), "http://{$request->header['host']}{$request->server['request_uri']}$query",
        $request->header, (string) $request->getContent(), $request->post ?? [], $request->cookie ?? []);
    $response->status($answer->getStatusCode());
    foreach ($answer->getHeaders() as $name => $values) {
        $response->header($name, $values);
    }
    $response->end((string) $answer->getBody());
});
$server->start();
