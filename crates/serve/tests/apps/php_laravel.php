<?php
// A small application of Laravel 8: behind FastCGI, and in a server of Swoole's.
require 'Illuminate/autoload.php';

use Illuminate\Contracts\Debug\ExceptionHandler;
use Illuminate\Contracts\Http\Kernel as HttpKernel;
use Illuminate\Foundation\Application;
use Illuminate\Foundation\Bootstrap\BootProviders;
use Illuminate\Foundation\Bootstrap\RegisterFacades;
use Illuminate\Foundation\Bootstrap\RegisterProviders;
use Illuminate\Foundation\Exceptions\Handler;
use Illuminate\Foundation\Http\Kernel;
use Illuminate\Http\JsonResponse;
use Illuminate\Http\Request;
use Illuminate\Http\Response;
use Illuminate\Support\Facades\Facade;

/** The kernel without files of configuration. */
class SmallKernel extends Kernel
{
    protected $bootstrappers = [RegisterFacades::class, RegisterProviders::class, BootProviders::class];
}

/** Errors as plain text. */
class SmallHandler extends Handler
{
    public function report(Throwable $why): void
    {
    }

    public function render($request, Throwable $why): Response
    {
        return new Response($why->getMessage(), $this->isHttpException($why) ? $why->getStatusCode() : 500);
    }
}

is_dir(__DIR__ . '/bootstrap/cache') || mkdir(__DIR__ . '/bootstrap/cache', 0777, true);
$app = new Application(__DIR__);
$app->instance('config', new Illuminate\Config\Repository(['app' => ['providers' => [], 'aliases' => [], 'debug' => false,
    'env' => 'production']]));
$app->singleton(HttpKernel::class, SmallKernel::class);
$app->singleton(ExceptionHandler::class, SmallHandler::class);
Facade::setFacadeApplication($app);
$kernel = $app->make(HttpKernel::class);
$router = $app->make('router');
$router->get('/hello/{name}', static fn (Request $request, string $name) => new Response("hello $name " . $request->query('q')));
$router->post('/form', static fn (Request $request) => new JsonResponse([$request->post(), $request->cookies->all()], 201));
$router->get('/fail', static fn () => abort(500, 'it fails'));

function answer(HttpKernel $kernel, Request $request): Symfony\Component\HttpFoundation\Response
{
    $answer = $kernel->handle($request);
    $answer->headers->set('X-Framework', 'laravel');
    return $answer;
}

if (PHP_SAPI === 'cgi-fcgi') {
    $request = Request::capture();
    $answer = answer($kernel, $request);
    $answer->send();
    $kernel->terminate($request, $answer);
    return;
}
$server = new Swoole\Http\Server('127.0.0.1', 0);
$server->on('request', static function ($request, $response) use ($kernel): void {
    $variables = array_change_key_case($request->server, CASE_UPPER);
    foreach ($request->header as $name => $value) {
        $variables['HTTP_' . strtoupper(strtr($name, '-', '_'))] = $value;
    }
    $asked = new Request($request->get ?? [], $request->post ?? [], [], $request->cookie ?? [], [], $variables,
        (string) $request->getContent());
    $answer = answer($kernel, $asked);
    $response->status($answer->getStatusCode());
    foreach ($answer->headers->allPreserveCase() as $name => $values) {
        $response->header($name, $values);
    }
    $response->end($answer->getContent());
    $kernel->terminate($asked, $answer);
});
$server->start();
