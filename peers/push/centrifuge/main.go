// A hub by the library of Centrifugo: for side-by-side runs. Its argument is the port. GET /connection/websocket, POST /pub
// publishes its body to the channel t.
package main

import (
	"context"
	"io"
	"log"
	"net/http"
	"os"

	"github.com/centrifugal/centrifuge"
)

func main() {
	node, err := centrifuge.New(centrifuge.Config{})
	if err != nil {
		log.Fatal(err)
	}
	node.OnConnecting(func(context.Context, centrifuge.ConnectEvent) (centrifuge.ConnectReply, error) {
		return centrifuge.ConnectReply{Credentials: &centrifuge.Credentials{UserID: ""}}, nil
	})
	node.OnConnect(func(client *centrifuge.Client) {
		client.OnSubscribe(func(_ centrifuge.SubscribeEvent, done centrifuge.SubscribeCallback) {
			done(centrifuge.SubscribeReply{}, nil)
		})
	})
	if err := node.Run(); err != nil {
		log.Fatal(err)
	}
	http.Handle("/connection/websocket", centrifuge.NewWebsocketHandler(node, centrifuge.WebsocketConfig{}))
	http.HandleFunc("/pub", func(out http.ResponseWriter, request *http.Request) {
		data, err := io.ReadAll(request.Body)
		if err == nil {
			_, err = node.Publish("t", data, centrifuge.WithHistory(100, 300e9))
		}
		if err != nil {
			http.Error(out, err.Error(), http.StatusInternalServerError)
		}
	})
	log.Fatal(http.ListenAndServe("127.0.0.1:"+os.Args[1], nil))
}
