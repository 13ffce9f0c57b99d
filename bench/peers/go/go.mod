module holdfast/peers

go 1.21
