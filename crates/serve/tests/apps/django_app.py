"""A Django application of the tests in one file, as WSGI and as ASGI."""

import asyncio

from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse, JsonResponse, StreamingHttpResponse
from django.urls import path

settings.configure(
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    SECRET_KEY="of the tests",
    FILE_UPLOAD_MAX_MEMORY_SIZE=1000,
)


def page(request, name):
    return HttpResponse("<p>Hello, %s from %s</p>" % (name, request.headers["X-From"]))


def upload(request):
    file = request.FILES["file"]
    return JsonResponse({"name": file.name, "bytes": len(file.read()), "note": request.POST["note"]})


def stream(request):
    return StreamingHttpResponse(("%d;" % number for number in range(1000)), content_type="text/plain")


async def events(request):
    async def each():
        for number in range(3):
            yield "data: %d\n\n" % number
            await asyncio.sleep(0.01)

    return StreamingHttpResponse(each(), content_type="text/event-stream")


urlpatterns = [
    path(prefix + "/" + rest, view)
    for prefix in ("django", "django-asgi")
    for rest, view in [("page/<name>", page), ("upload", upload), ("stream", stream), ("events", events)]
]

wsgi = get_wsgi_application()
asgi = get_asgi_application()
