#!/bin/sh
# start.sh NAME PORT: starts a peer that is more than one file, on 127.0.0.1. Exit code 2: it is not installed, and what is
# missing. What it needs at run time lies in a folder of its own beside this file. What is to be proxied is in UPSTREAM.
here=$(cd "$(dirname "$0")" && pwd) || exit 1
name=$1
port=$2
PATH=$PATH:/usr/sbin:/usr/local/sbin

absent() {
    echo "$1 is not installed" >&2
    exit 2
}

first_of() {
    for program in "$@"; do
        command -v "$program" && return
    done
}

# The folder of this run, with a configuration in which PORT, FOLDER and `WHO` are filled in.
folder=$here/run-$name-$port
# No process remains to remove it when the server ends, so the next run does: old folders without a server.
find "$here" -maxdepth 1 -name "run-$name-*" -mmin +60 | while IFS= read -r old; do
    pid=$(cat "$old/nginx.pid" 2> /dev/null) && kill -0 "$pid" 2> /dev/null || rm -rf "$old"
done
configure() {
    mkdir -p "$folder"
    sed -e "s|PORT|$port|g" -e "s|FOLDER|$folder|g" -e "s|HERE|$here|g" -e "s|UPSTREAM|$UPSTREAM|g" \
        "$here/$1" > "$folder/$1"
}

case $name in
node)
    command -v node > /dev/null || absent node
    exec node "$here/hello.js" "127.0.0.1:$port"
    ;;
nginx | nginx-files | nginx-kept | nginx-proxy | nginx-held)
    command -v nginx > /dev/null || absent nginx
    configure "$name.conf"
    mkdir -p "$folder/nginx-tmp"
    exec nginx -p "$folder" -c "$folder/$name.conf"
    ;;
php-fpm)
    command -v nginx > /dev/null || absent nginx
    fpm=$(first_of php-fpm php-fpm8.4 php-fpm8.3 php-fpm8.2 php-fpm8.1 php-fpm8.0 php-fpm7.4)
    [ -n "$fpm" ] || absent php-fpm
    command -v setpriv > /dev/null || absent setpriv
    configure fpm.conf
    configure nginx-php.conf
    mkdir -p "$folder/nginx-tmp"
    # As root it must be told that this is meant.
    [ "$(id -u)" = 0 ] && as_root=-R
    # It opens a session of its own, out of reach of a signal to this one: so it ends when its parent does, which will be
    # nginx.
    setpriv --pdeathsig TERM "$fpm" -F -n $as_root -y "$folder/fpm.conf" &
    tries=0
    while [ ! -S "$folder/fpm.sock" ] && [ $tries -lt 100 ]; do
        tries=$((tries + 1))
        sleep 0.05
    done
    exec nginx -p "$folder" -c "$folder/nginx-php.conf"
    ;;
swoole)
    command -v php > /dev/null || absent php
    php -m | grep -qi '^\(open\)\{0,1\}swoole$' || absent 'the PHP extension swoole'
    exec php "$here/swoole.php" "$port"
    ;;
*)
    echo "start.sh: nobody is called $name" >&2
    exit 1
    ;;
esac
