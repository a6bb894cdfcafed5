from warm_integrations.core.blocking import *
