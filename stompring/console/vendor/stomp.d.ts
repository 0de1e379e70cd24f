export { Client, Versions } from "@stomp/stompjs";
export type { IFrame, IMessage, StompHeaders, StompSubscription } from "@stomp/stompjs";
