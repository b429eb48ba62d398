// The bridge that the pods of a real node hang on.
//
//	bridge add NAME ADDRESS/BITS    makes it; ends with 17 if there is an interface of this name or a host address of this network
//	bridge remove NAME              takes it away; it may be gone already
package main

import (
	"errors"
	"log"
	"os"
	"syscall"

	"github.com/vishvananda/netlink"
)

// taken is how it ends when somebody else has the name or the network.
const taken = 17

func main() {
	log.SetFlags(0)
	switch {
	case len(os.Args) == 4 && os.Args[1] == "add":
		add(os.Args[2], os.Args[3])
	case len(os.Args) == 3 && os.Args[1] == "remove":
		remove(os.Args[2])
	default:
		log.Fatal("usage: bridge add NAME ADDRESS/BITS, or: bridge remove NAME")
	}
}

func add(name, text string) {
	address, err := netlink.ParseAddr(text)
	if err != nil {
		log.Fatalf("failed to read the address %s: %v", text, err)
	}
	others, err := netlink.AddrList(nil, netlink.FAMILY_V4)
	if err != nil {
		log.Fatalf("failed to list the addresses of this machine: %v", err)
	}
	for _, other := range others {
		if address.Contains(other.IP) || other.Contains(address.IP) {
			os.Exit(taken)
		}
	}
	bridge := &netlink.Bridge{LinkAttrs: netlink.NewLinkAttrs()}
	bridge.Name = name
	if err := netlink.LinkAdd(bridge); errors.Is(err, syscall.EEXIST) {
		os.Exit(taken)
	} else if err != nil {
		log.Fatalf("failed to add the bridge %s: %v", name, err)
	}
	if err := netlink.AddrAdd(bridge, address); err != nil {
		remove(name)
		log.Fatalf("failed to give %s the address %s: %v", name, text, err)
	}
	if err := netlink.LinkSetUp(bridge); err != nil {
		remove(name)
		log.Fatalf("failed to set the bridge %s up: %v", name, err)
	}
}

func remove(name string) {
	link, err := netlink.LinkByName(name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return
	} else if err != nil {
		log.Fatalf("failed to find the bridge %s: %v", name, err)
	}
	if err := netlink.LinkDel(link); err != nil {
		log.Fatalf("failed to remove the bridge %s: %v", name, err)
	}
}
