<?php
// Symfony's HttpKernel with controllers of its own: behind FastCGI, and in a server of Swoole's.
require 'Symfony/Component/HttpKernel/autoload.php';

use Symfony\Component\EventDispatcher\EventDispatcher;
use Symfony\Component\HttpFoundation\JsonResponse;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpFoundation\RequestStack;
use Symfony\Component\HttpFoundation\Response;
use Symfony\Component\HttpKernel\Controller\ArgumentResolver;
use Symfony\Component\HttpKernel\Controller\ControllerResolver;
use Symfony\Component\HttpKernel\Event\ExceptionEvent;
use Symfony\Component\HttpKernel\Event\RequestEvent;
use Symfony\Component\HttpKernel\Event\ResponseEvent;
use Symfony\Component\HttpKernel\Exception\NotFoundHttpException;
use Symfony\Component\HttpKernel\HttpKernel;
use Symfony\Component\HttpKernel\KernelEvents;

$events = new EventDispatcher();
$events->addListener(KernelEvents::REQUEST, static function (RequestEvent $event): void {
    $request = $event->getRequest();
    if (preg_match('#^/hello/(\w+)$#', $request->getPathInfo(), $found)) {
        $request->attributes->set('name', $found[1]);
        $request->attributes->set('_controller', static fn (string $name, Request $request)
            => new Response("hello $name " . $request->query->get('q', '')));
    } elseif ($request->getPathInfo() === '/form' && $request->isMethod('POST')) {
        $request->attributes->set('_controller', static fn (Request $request)
            => new JsonResponse([$request->request->all(), $request->cookies->all()], 201));
    } elseif ($request->getPathInfo() === '/fail') {
        $request->attributes->set('_controller', static fn () => throw new RuntimeException('it fails'));
    } else {
        throw new NotFoundHttpException('there is no ' . $request->getPathInfo());
    }
});
$events->addListener(KernelEvents::EXCEPTION, static function (ExceptionEvent $event): void {
    $why = $event->getThrowable();
    $event->setResponse(new Response($why->getMessage(), $why instanceof NotFoundHttpException ? 404 : 500));
});
$events->addListener(KernelEvents::RESPONSE, static function (ResponseEvent $event): void {
    $event->getResponse()->headers->set('X-Framework', 'symfony');
});
$kernel = new HttpKernel($events, new ControllerResolver(), new RequestStack(), new ArgumentResolver());

if (PHP_SAPI === 'cgi-fcgi') {
    $request = Request::createFromGlobals();
    $answer = $kernel->handle($request);
    $answer->prepare($request)->send();
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
    $answer = $kernel->handle($asked);
    $response->status($answer->getStatusCode());
    foreach ($answer->prepare($asked)->headers->allPreserveCase() as $name => $values) {
        $response->header($name, $values);
    }
    $response->end($answer->getContent());
    $kernel->terminate($asked, $answer);
});
$server->start();
